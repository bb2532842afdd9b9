// One peer floods the coordinator's port with frames that no framed RPC client sends. The
// coordinator closes its connection, keeps little memory for it, and serves other clients
// meanwhile.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/flood_test_base.h"
#include "tests/failure/testing/raw_http2.h"

namespace cohort {
namespace {

using testing::RawHttp2;
using testing::Repeat;

class FramedRpcFloodTest : public testing::FloodTest {
 protected:
  // A coordinator that is not optimised may not reach the default rates.
  std::vector<std::string> Flags() const override {
    return {"--max-resets-per-second=100", "--max-idle-frames-per-second=100"};
  }
  void SetUp() override {
    FloodTest::SetUp();
    // The server's first frame has the names of its methods in the order of their numbers.
    RawHttp2 connection(coordinator_.port(), framed_rpc::kPreface);
    const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
    while (!absl::StrContains(connection.last_bytes(), "AdminService/Limits\n")) {
      ASSERT_LT(Clock::Steady().Now(), deadline) << "no hello";
      connection.AwaitClosed(absl::Milliseconds(20));
    }
    const std::string& hello = connection.last_bytes();
    methods_ = absl::StrSplit(hello.substr(hello.find("COHORT/1") + framed_rpc::kPreface.size() +
                                           framed_rpc::kHeaderBytes),
                              '\n');
  }

  uint16_t MethodOf(const std::string& name) const {
    for (size_t i = 0; i < methods_.size(); ++i) {
      if (absl::EndsWith(methods_[i], name)) return static_cast<uint16_t>(i);
    }
    ADD_FAILURE() << "no method " << name;
    return 0;
  }
  static std::string Call(uint32_t id, uint16_t method, const std::string& body) {
    framed_rpc::Header header;
    header.kind = framed_rpc::Kind::kCall;
    header.call = id;
    header.method = method;
    header.extra = framed_rpc::kNoTimeout;
    header.body_bytes = static_cast<uint32_t>(body.size());
    std::string frame;
    framed_rpc::AppendHeader(header, &frame);
    return frame + body;
  }
  // A call that waits for a key that no call sets.
  std::string ParkedCall(uint32_t id) const {
    v1::GetRequest request;
    request.add_keys("never");
    request.mutable_wait()->set_seconds(60);
    return Call(id, MethodOf("StoreService/Get"), request.SerializeAsString());
  }
  static std::string Cancel(uint32_t id) {
    framed_rpc::Header header;
    header.kind = framed_rpc::Kind::kCancel;
    header.call = id;
    std::string frame;
    framed_rpc::AppendHeader(header, &frame);
    return frame;
  }
  // Attacks with the frames that `make` returns for the numbers 1, 2, 3...
  template <typename Make>
  void RunFrames(Make make) {
    Run(
        1,
        [&](RawHttp2& connection, int) {
          uint32_t id = 0;
          Repeat(connection, [&] {
            std::string many;
            for (int i = 0; i < 100; ++i) many += make(++id);
            return many;
          });
          connection.AwaitClosed(absl::Seconds(5));
        },
        std::string(framed_rpc::kPreface));
  }

  std::vector<std::string> methods_;
};

TEST_F(FramedRpcFloodTest, CallsThatAreCancelledAtOnce) {
  const std::string parked = ParkedCall(0);
  RunFrames([&](uint32_t id) {
    std::string call = parked;
    call.replace(4, 4, reinterpret_cast<const char*>(&id), 4);
    return call + Cancel(id);
  });
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(Logged("max_resets_per_second (1600)"), 1);
}

TEST_F(FramedRpcFloodTest, CancelsOfCallsThatWereNeverMade) {
  RunFrames([](uint32_t id) { return Cancel(id); });
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(Logged("max_idle_frames_per_second (1600)"), 1);
}

TEST_F(FramedRpcFloodTest, CallsOfNoMethod) {
  RunFrames([](uint32_t id) { return Call(id, 9999, ""); });
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(Logged("max_idle_frames_per_second (1600)"), 1);
}

TEST_F(FramedRpcFloodTest, CallsThatWaitWithoutEnd) {
  const std::string parked = ParkedCall(0);
  RunFrames([&](uint32_t id) {
    std::string call = parked;
    call.replace(4, 4, reinterpret_cast<const char*>(&id), 4);
    return call;
  });
  EXPECT_EQ(closed_, 1);
}

// An honest client may call as fast as it likes, but must not delay others.
TEST_F(FramedRpcFloodTest, SmallCallsThatAreAnswered) {
  const uint16_t limits = MethodOf("AdminService/Limits");
  RunFrames([&](uint32_t id) { return Call(id, limits, ""); });
  EXPECT_EQ(closed_, 0);
  EXPECT_EQ(Logged("closed a connection"), 0);
}

}  // namespace
}  // namespace cohort
