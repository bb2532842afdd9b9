// A peer that belongs to the group may send anything: at worst the communicator ends and names it.
#include <sys/socket.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/socket/mesh/mesh.h"
#include "worker/communicator/socket/testing/socket_group.h"

namespace cohort::worker {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

// Rank 0 is a communicator, rank 1 the test.
class SocketHostileTest : public ::testing::Test {
 protected:
  SocketHostileTest() : seed_(std::random_device()()), random_(seed_) {
    RecordProperty("seed", std::to_string(seed_));
  }

  void Connect() {
    const TestGroup group(2);
    MeshOptions options;
    options.rank = 1;
    options.addresses = group.addresses;
    options.secret = kTestSecret;
    options.streams = 3;
    std::thread connecting([&] {
      absl::StatusOr<Mesh> mesh = ConnectMesh(group.listeners[1], options, Soon());
      ASSERT_TRUE(mesh.ok()) << mesh.status();
      streams_ = std::move(mesh->streams[0]);
    });
    rank_ = group.Connect(0);
    connecting.join();
  }

  void Say(size_t stream, const void* bytes, size_t count) {
    // The communicator may have ended, and its buffers may be full.
    [[maybe_unused]] const ssize_t sent =
        send(streams_[stream].fd(), bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT);
  }
  void Say(const FrameHeader& header, const std::string& payload = "") {
    Say(0, &header, sizeof(header));
    Say(0, payload.data(), payload.size());
  }
  std::string Garbage(size_t most) {
    std::string bytes(random_() % (most + 1), '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    return bytes;
  }

  absl::Status Call(Instant deadline) {
    const int64_t count = random_() % 2 == 0 ? 10 : 100000;
    switch (random_() % 4) {
      case 0: {
        const Transfer transfers[] = {
            Transfer::Send(1, memory_.data(), count, DataType::kF32),
            Transfer::Receive(1, memory_.data() + count, count, DataType::kF32)};
        return rank_->Exchange(transfers, deadline);
      }
      case 1:
        return rank_->Broadcast(memory_.data(), memory_.data(), count, DataType::kF32, 1, deadline);
      case 2:
        return rank_->Barrier(deadline);
      default:
        return rank_->AllReduce(memory_.data(), memory_.data(), count, DataType::kF32,
                                {ReduceOp::kSum}, deadline);
    }
  }
  // Calls end well, or with an error that names rank 1, whatever rank 1 has sent.
  void ExpectHarmless() {
    absl::Status status;
    for (int i = 0; i < 3 && status.ok(); ++i) status = Call(In(absl::Milliseconds(2)));
    if (status.ok()) return;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1")) << status;
    EXPECT_THAT(status.code(),
                AnyOf(absl::StatusCode::kAborted, absl::StatusCode::kDeadlineExceeded,
                      absl::StatusCode::kInvalidArgument))
        << status;
  }
  void ExpectBroken(const std::string& how) {
    const absl::Status status = rank_->Barrier(Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_EQ(status.message(), absl::StrCat("rank 1 broke the protocol: ", how));
  }

  const unsigned seed_;
  std::mt19937 random_;
  std::vector<float> memory_ = std::vector<float>(200000);
  std::vector<RankSocket> streams_;
  std::unique_ptr<SocketCommunicator> rank_;
};

TEST_F(SocketHostileTest, GarbageInEveryStream) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  for (int round = 0; round < 100; ++round) {
    Connect();
    for (size_t stream = 0; stream < streams_.size(); ++stream) {
      const std::string garbage = Garbage(5000);
      Say(stream, garbage.data(), garbage.size());
    }
    if (random_() % 4 == 0) streams_.clear();
    ExpectHarmless();
  }
}

// Frames that are nearly right.
TEST_F(SocketHostileTest, FramesOfAllKindsWithAnythingInThem) {
  SCOPED_TRACE(absl::StrCat("seed ", seed_));
  const auto some = [this](std::vector<int64_t> values) {
    return values[random_() % values.size()];
  };
  for (int round = 0; round < 300; ++round) {
    Connect();
    const int frames = 1 + static_cast<int>(random_() % 8);
    for (int frame = 0; frame < frames; ++frame) {
      FrameHeader header;
      header.kind = static_cast<FrameKind>(random_() % 12);
      header.number = static_cast<uint64_t>(some({0, 1, 2, 3, 40, 1 << 20, -1}));
      FlatCall call;
      call.collective = static_cast<Collective>(some({0, 1, 1, 3, 4, 8, 9, 14, 14, 14, 18, 31}));
      call.type = static_cast<DataType>(some({0, 3, 12, 12, 12, 17, 18, 31}));
      call.count = some({0, 1, 10, 100000, 16384, int64_t{1} << 62, -1});
      call.root = static_cast<int>(some({0, 1, 0x7FFF}));
      call.reduction.op = static_cast<ReduceOp>(random_() % 11);
      header.key = KeyOf(call);
      header.payload_bytes = static_cast<uint32_t>(some({0, 0, 0, 1, 40, 1000, 70000, -1}));
      const bool honest = random_() % 2 == 0;
      Say(header, honest && header.payload_bytes < 100000 ? std::string(header.payload_bytes, 'x')
                                                          : Garbage(1000));
    }
    const std::string data = Garbage(100000);
    Say(1, data.data(), data.size());
    ExpectHarmless();
  }
}

TEST_F(SocketHostileTest, LiesAreNamed) {
  FrameHeader header;
  Connect();
  header.number = 3;
  Say(header);
  ExpectBroken("an operation out of sequence");

  Connect();
  header.number = 1;
  header.payload_bytes = 1 << 20;
  Say(header);
  ExpectBroken("too large a part");

  Connect();
  header = FrameHeader();
  header.kind = FrameKind::kAccept;
  Say(header);
  ExpectBroken("an answer without an offer");

  Connect();
  header.kind = FrameKind::kCredit;
  header.number = 1;
  Say(header);
  ExpectBroken("more credit than it used");

  Connect();
  header.kind = FrameKind::kControlCredit;
  Say(header);
  ExpectBroken("more credit than it used");

  Connect();
  header.kind = FrameKind::kControl;
  header.key = KeyOf(Transfer::Send(0, nullptr, 1 << 20, DataType::kF64));
  Say(header);
  ExpectBroken("a message with a wrong payload size");

  Connect();
  header.kind = FrameKind::kOffer;
  header.number = 0;
  header.key = KeyOf(Transfer::Send(0, nullptr, 1 << 20, DataType::kF64));
  for (int i = 0; i < 4000; ++i) Say(header);
  ExpectBroken("more bytes of messages than its window");

  Connect();
  header.kind = FrameKind::kAbort;
  header.payload_bytes = 5;
  Say(header, "\x1b[2J\n");
  absl::Status status = rank_->Barrier(Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "rank 1 says: \\x1b[2J\\x0a");

  Connect();
  header.payload_bytes = 0;
  Say(header);
  status = rank_->Barrier(Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(status.message(), "rank 1 ended the communicator and gave no cause");
}

}  // namespace
}  // namespace cohort::worker
