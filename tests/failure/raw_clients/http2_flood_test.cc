// One peer floods the coordinator's port with HTTP/2 frames that no client sends. The coordinator
// closes its connections, keeps little memory for them, and serves other clients meanwhile.
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/flood_test_base.h"
#include "tests/failure/testing/raw_http2.h"
#include "tests/failure/testing/stubs.h"

namespace cohort {
namespace {

using testing::Attack;
using testing::Frame;
using testing::FrameType;
using ::testing::HasSubstr;
using testing::kEndHeaders;
using testing::kEndStream;
using testing::kMiB;
using testing::Number32;
using testing::Pause;
using testing::RawHttp2;
using testing::Repeat;
using testing::RequestBlock;

constexpr char kParkingMethod[] = "/cohort.v1.StoreService/Get";

class Http2FloodTest : public testing::FloodTest {};

// With TLS, the listener has taken all bytes from the socket before gRPC reads.
TEST_F(Http2FloodTest, ACallThatArrivesWithItsGreeting) {
  const std::string headers = RequestBlock("/cohort.v1.AdminService/Limits");
  RawHttp2 connection(
      coordinator_.port(),
      absl::StrCat(RawHttp2::Greeting(), Frame(FrameType::kHeaders, kEndHeaders, 1, headers),
                   Frame(FrameType::kData, kEndStream, 1, std::string(5, '\0'))));
  const std::string trailers("\x01\x05\0\0\0\x01", 6);  // headers that end the stream
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(10);
  while (!absl::StrContains(connection.last_bytes(), trailers)) {
    ASSERT_LT(Clock::Steady().Now(), deadline) << "no answer";
    ASSERT_FALSE(connection.AwaitClosed(absl::Milliseconds(20)));
  }
}

TEST_F(Http2FloodTest, AHeaderBlockWithoutEnd) {
  Run(1, [](RawHttp2& connection, int) {
    // One literal whose length field claims 300 MiB.
    connection.Send(Frame(FrameType::kHeaders, 0, 1,
                          absl::StrCat(RequestBlock(kParkingMethod),
                                       absl::string_view("\x00\x01x\x7f\x81\xff\xff\x95\x01", 9))));
    const std::string more = Frame(FrameType::kContinuation, 0, 1, std::string(16384, 'a'));
    Repeat(connection, [&] { return more; });
  });
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(Logged("max_header_block_bytes (65536)"), 1);
}

TEST_F(Http2FloodTest, EmptyContinuations) {
  Run(1, [](RawHttp2& connection, int) {
    connection.Send(Frame(FrameType::kHeaders, 0, 1, RequestBlock(kParkingMethod)));
    std::string many;
    for (int i = 0; i < 1000; ++i) many += Frame(FrameType::kContinuation, 0, 1, "");
    Repeat(connection, [&] { return many; });
  });
  EXPECT_EQ(closed_, 1);
}

TEST_F(Http2FloodTest, RapidResets) {
  const int64_t before = coordinator_.ResidentBytes();
  for (const int connections : {1, 4}) {
    Run(connections, [](RawHttp2& connection, int) {
      uint32_t stream = 1;
      const std::string block = RequestBlock(kParkingMethod);
      Repeat(connection, [&] {
        std::string many;
        for (int i = 0; i < 100; ++i, stream += 2) {
          many += Frame(FrameType::kHeaders, kEndHeaders, stream, block);
          many += Frame(FrameType::kResetStream, 0, stream, Number32(8));
        }
        return many;
      });
    });
    EXPECT_EQ(closed_, connections);
  }
  // The memory of the calls goes back to the system.
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
  while (coordinator_.ResidentBytes() > before + 16 * kMiB && Clock::Steady().Now() < deadline) {
    Pause();
  }
  EXPECT_LE(coordinator_.ResidentBytes(), before + 16 * kMiB);
  // The log has one line for all connections of the peer.
  EXPECT_EQ(Logged("max_resets_per_second"), 1);
}

TEST_F(Http2FloodTest, ResetsByAPeerThatConnectsAgain) {
  const int64_t before = coordinator_.ResidentBytes();
  const std::string block = RequestBlock(kParkingMethod);
  int closed_count = 0;
  for (int round = 0; round < 50; ++round) {
    RawHttp2 connection(coordinator_.port(), RawHttp2::Greeting());
    std::string many;
    for (uint32_t stream = 1; stream < 8000; stream += 2) {
      many += Frame(FrameType::kHeaders, kEndHeaders, stream, block);
      many += Frame(FrameType::kResetStream, 0, stream, Number32(8));
    }
    connection.Send(many);
    if (connection.AwaitClosed(absl::Seconds(5))) ++closed_count;
  }
  EXPECT_EQ(closed_count, 50);
  EXPECT_LE(coordinator_.ResidentBytes() - before, 64 * kMiB);
  EXPECT_EQ(Logged("max_resets_per_second"), 1);
}

TEST_F(Http2FloodTest, FramesThatCarryNothing) {
  const std::string kinds[] = {
      Frame(FrameType::kSettings, 0, 0, absl::StrCat(std::string("\0\4", 2), Number32(65535))),
      Frame(FrameType::kSettings, kEndStream, 0, ""),
      Frame(FrameType::kPing, kEndStream, 0, "12345678"),
      Frame(FrameType::kPing, 0, 0, "12345678"),
      Frame(FrameType::kData, 0, 1, ""),
      Frame(FrameType::kPriority, 0, 1, absl::StrCat(Number32(0), "\x10")),
      Frame(FrameType::kWindowUpdate, 0, 1, Number32(1)),
      Frame(static_cast<FrameType>(0x20), 0, 1, "x"),
  };
  for (const std::string& kind : kinds) {
    SCOPED_TRACE(absl::StrCat("frame of type ", static_cast<int>(kind[3]), ", flags ",
                              static_cast<int>(kind[4])));
    Run(1, [&](RawHttp2& connection, int) {
      connection.Send(Frame(FrameType::kHeaders, kEndHeaders, 1, RequestBlock(kParkingMethod)));
      std::string many;
      for (int i = 0; i < 1000; ++i) many += kind;
      Repeat(connection, [&] { return many; });
    });
    EXPECT_EQ(closed_, 1);
  }
}

TEST_F(Http2FloodTest, AHeaderOfTheTableThatIsNamedThousandsOfTimes) {
  Run(1, [](RawHttp2& connection, int) {
    // 4000 bytes go into the table; each byte of the later blocks stands for them.
    const std::string big =
        absl::StrCat(RequestBlock(kParkingMethod), absl::string_view("\x40\x01x\x7f\xa1\x1e", 6),
                     std::string(4000, 'a'));
    connection.Send(Frame(FrameType::kHeaders, kEndHeaders | kEndStream, 1, big));
    const std::string bomb = RequestBlock(kParkingMethod) + std::string(16000, '\xbe');
    uint32_t stream = 3;
    Repeat(connection, [&] {
      stream += 2;
      return Frame(FrameType::kHeaders, kEndHeaders | kEndStream, stream, bomb);
    });
  });
}

TEST_F(Http2FloodTest, StreamsThatNeverEnd) {
  Run(1, [](RawHttp2& connection, int) {
    uint32_t stream = 1;
    const std::string block = RequestBlock(kParkingMethod);
    Repeat(connection, [&] {
      std::string many;
      for (int i = 0; i < 100; ++i, stream += 2) {
        many += Frame(FrameType::kHeaders, kEndHeaders, stream, block);
      }
      return many;
    });
  });
  EXPECT_EQ(closed_, 1);
}

TEST_F(Http2FloodTest, StreamsOfAPeerThatAcknowledgesNoSettings) {
  const std::string greeting = RawHttp2::Greeting();
  const Attack attack = [](RawHttp2& connection, int) {
    uint32_t stream = 1;
    const std::string block = RequestBlock(kParkingMethod);
    Repeat(connection, [&] {
      std::string many;
      for (int i = 0; i < 100; ++i, stream += 2) {
        many += Frame(FrameType::kHeaders, kEndHeaders, stream, block);
      }
      return many;
    });
  };
  Run(1, attack, greeting.substr(0, greeting.size() - 9));
  EXPECT_EQ(closed_, 1);
}

// 2000 calls may wait. All of them end with their connection.
TEST_F(Http2FloodTest, AConnectionWithManyCallsEnds) {
  v1::GetRequest request;
  request.add_keys("never");
  request.mutable_wait()->set_seconds(60);
  const std::string body = request.SerializeAsString();
  const std::string message =
      absl::StrCat(std::string(1, '\0'), Number32(static_cast<uint32_t>(body.size())), body);
  Run(1, [&](RawHttp2& connection, int) {
    const std::string block = RequestBlock(kParkingMethod);
    for (uint32_t stream = 1; stream < 4000; stream += 2) {
      connection.Send(Frame(FrameType::kHeaders, kEndHeaders, stream, block));
      connection.Send(Frame(FrameType::kData, kEndStream, stream, message));
    }
    connection.Finish();
    EXPECT_TRUE(connection.AwaitClosed(absl::Seconds(20)));
  });
  EXPECT_EQ(closed_, 1);
  EXPECT_EQ(Logged("closed a connection"), 0);
}

TEST_F(Http2FloodTest, MessagesThatNeverEnd) {
  Run(1, [](RawHttp2& connection, int) {
    // 200 messages whose headers claim 4,000,000 bytes, whatever the windows are.
    const std::string block = RequestBlock(kParkingMethod);
    const std::string prefix = absl::StrCat(std::string(1, '\0'), Number32(4000000));
    for (uint32_t stream = 1; stream < 400; stream += 2) {
      connection.Send(Frame(FrameType::kHeaders, kEndHeaders, stream, block));
      connection.Send(Frame(FrameType::kData, 0, stream, prefix));
    }
    std::mt19937_64 random(1);
    Repeat(connection, [&] {
      std::string many;
      for (uint32_t stream = 1; stream < 400; stream += 2) {
        many += Frame(FrameType::kData, 0, stream, std::string(1 + random() % 16384, 'b'));
      }
      return many;
    });
  });
  EXPECT_EQ(closed_, 1);
}

TEST_F(Http2FloodTest, MessagesInFramesOfOneByte) {
  Run(1, [](RawHttp2& connection, int) {
    const std::string block = RequestBlock(kParkingMethod);
    const std::string prefix = absl::StrCat(std::string(1, '\0'), Number32(4000000));
    uint32_t stream = 1;
    connection.Send(Frame(FrameType::kHeaders, kEndHeaders, stream, block));
    connection.Send(Frame(FrameType::kData, 0, stream, prefix));
    std::string many;
    for (int i = 0; i < 1000; ++i) many += Frame(FrameType::kData, 0, stream, "b");
    Repeat(connection, [&] { return many; });
  });
  EXPECT_EQ(closed_, 1);
}

// A stub's user with many calls on one channel is no attacker.
class ManyCallsTest : public Http2FloodTest {
 protected:
  struct Call {
    grpc::ClientContext context;
    v1::GetRequest request;
    v1::GetResponse response;
    std::promise<grpc::Status> done;
  };

  std::vector<std::unique_ptr<Call>> Park(testing::Stubs& stubs, const std::string& key) {
    std::vector<std::unique_ptr<Call>> calls;
    for (int i = 0; i < kCalls; ++i) {
      calls.push_back(std::make_unique<Call>());
      Call* const call = calls.back().get();
      call->request.add_keys(key);
      call->request.mutable_wait()->set_seconds(60);
      stubs.store->async()->Get(
          &call->context, &call->request, &call->response,
          [call](grpc::Status status) { call->done.set_value(std::move(status)); });
    }
    return calls;
  }

  void Put(testing::Stubs& stubs, const std::string& key, const std::string& value) {
    v1::PutRequest request;
    request.set_key(key);
    request.set_value(value);
    v1::PutResponse response;
    const grpc::Status status =
        stubs.store->Put(testing::Context(absl::Seconds(30)).get(), request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  static constexpr int kCalls = 1000;
};

TEST_F(ManyCallsTest, AThousandCallsOfOneChannelAreParkedAndCancelled) {
  testing::Stubs stubs(coordinator_.address());
  Put(stubs, "before", "x");
  auto parked = Park(stubs, "key");
  Put(stubs, "key", "value");
  for (const auto& call : parked) {
    const grpc::Status status = call->done.get_future().get();
    EXPECT_TRUE(status.ok()) << status.error_message();
  }
  auto cancelled = Park(stubs, "never");
  for (const auto& call : cancelled) call->context.TryCancel();
  for (const auto& call : cancelled) {
    EXPECT_EQ(call->done.get_future().get().error_code(), grpc::StatusCode::CANCELLED);
  }
  EXPECT_EQ(stubs.channel->GetState(false), GRPC_CHANNEL_READY);
  Put(stubs, "after", "x");
  EXPECT_EQ(Logged("closed a connection"), 0);
}

TEST_F(ManyCallsTest, ManyLargeRequestsAtOnceAreTaken) {
  testing::Stubs stubs(coordinator_.address());
  const std::string value(1000000, 'v');
  std::vector<std::thread> writers;
  for (int i = 0; i < 32; ++i) {
    writers.emplace_back([&, i] {
      for (int round = 0; round < 4; ++round) Put(stubs, absl::StrCat("key-", i), value);
    });
  }
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(stubs.channel->GetState(false), GRPC_CHANNEL_READY);
  EXPECT_EQ(Logged("closed a connection"), 0);
}

}  // namespace
}  // namespace cohort
