// Data that arrives without a pause hides neither the deadline nor an abort.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/socket/mesh/mesh.h"
#include "worker/communicator/socket/testing/socket_group.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

// More than comes within the deadlines below, however fast the machine is.
constexpr int64_t kBytes = int64_t{32} << 30;
// From the deadline, or the abort, to the end of the call.
constexpr absl::Duration kPrompt = absl::Seconds(3);

// A range of kBytes, which a few MiB of memory stand behind again and again.
class RepeatedMemory {
 public:
  RepeatedMemory() {
    const UniqueFd memory(memfd_create("repeated", MFD_CLOEXEC));
    EXPECT_EQ(ftruncate(memory.get(), kPiece), 0);
    void* const range =
        mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    EXPECT_NE(range, MAP_FAILED);
    data_ = static_cast<char*>(range);
    for (int64_t at = 0; at < kBytes; at += kPiece) {
      EXPECT_NE(
          mmap(data_ + at, kPiece, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, memory.get(), 0),
          MAP_FAILED);
    }
  }
  ~RepeatedMemory() { munmap(data_, kBytes); }
  char* data() const { return data_; }

 private:
  static constexpr int64_t kPiece = int64_t{64} << 20;
  char* data_ = nullptr;
};

// Rank 0 is a communicator; the test plays the other ranks, and may send anything.
class SocketProgressTest : public ::testing::Test {
 protected:
  void Connect(int size) {
    const TestGroup group(size);
    meshes_.resize(static_cast<size_t>(size));
    std::vector<std::thread> threads;
    for (int rank = 1; rank < size; ++rank) {
      threads.emplace_back([&, rank] {
        MeshOptions options;
        options.rank = rank;
        options.addresses = group.addresses;
        options.secret = kTestSecret;
        options.streams = 3;
        absl::StatusOr<Mesh> mesh =
            ConnectMesh(group.listeners[static_cast<size_t>(rank)], options, Soon());
        ASSERT_TRUE(mesh.ok()) << mesh.status();
        meshes_[static_cast<size_t>(rank)] = *std::move(mesh);
      });
    }
    rank_ = group.Connect(0);
    for (std::thread& thread : threads) thread.join();
  }
  void TearDown() override {
    rank_.reset();  // its connections close: pumps end
    for (std::thread& pump : pumps_) pump.join();
  }

  void Say(int rank, const FrameHeader& header, const std::string& payload = "") {
    const std::string frame =
        std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + payload;
    ASSERT_EQ(send(Stream(rank, 0), frame.data(), frame.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(frame.size()));
  }
  // The rank comes to the broadcast that rank 0 calls.
  void Come(int rank) {
    FlatCall operation;
    operation.collective = Collective::kBroadcast;
    operation.count = kBytes;
    operation.type = DataType::kU8;
    operation.root = 1;
    FrameHeader header;
    header.number = 1;
    header.key = KeyOf(operation);
    Say(rank, header);
  }
  // The root's data, on both streams, as fast as it is taken.
  void StartPumps() {
    for (const int stream : {1, 2}) {
      pumps_.emplace_back([this, fd = Stream(1, stream)] {
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) & ~O_NONBLOCK);
        const std::string block(size_t{1} << 20, 'x');
        ssize_t sent;
        while ((sent = send(fd, block.data(), block.size(), MSG_NOSIGNAL)) > 0) pumped_ += sent;
      });
    }
  }
  absl::Status Broadcast(Instant deadline) {
    return rank_->Broadcast(memory_.data(), memory_.data(), kBytes, DataType::kU8, 1, deadline);
  }
  int Stream(int rank, int stream) const {
    return meshes_[static_cast<size_t>(rank)].streams[0][static_cast<size_t>(stream)].fd();
  }

  RepeatedMemory memory_;
  std::vector<Mesh> meshes_;
  std::unique_ptr<SocketCommunicator> rank_;
  std::vector<std::thread> pumps_;
  std::atomic<int64_t> pumped_{0};
};

TEST_F(SocketProgressTest, DataWithoutAPauseDoesNotHideTheDeadline) {
  Connect(2);
  Come(1);
  StartPumps();
  const Instant deadline = In(absl::Milliseconds(100));
  const absl::Status status = Broadcast(deadline);
  EXPECT_LT(Clock::Steady().Now() - deadline, kPrompt) << "after " << pumped_ << " bytes";
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1 did not finish"));
}

TEST_F(SocketProgressTest, DataWithoutAPauseDoesNotHideAnotherRanksAbort) {
  Connect(3);
  Come(1);
  Come(2);
  StartPumps();
  absl::Status status;
  Instant ended;
  std::thread call([&] {
    status = Broadcast(Soon());
    ended = Clock::Steady().Now();
  });
  // It is in the middle of the data.
  while (pumped_ < int64_t{64} << 20) std::this_thread::yield();
  const std::string cause = "rank 2 aborted: enough";
  FrameHeader abort;
  abort.kind = FrameKind::kAbort;
  abort.payload_bytes = static_cast<uint32_t>(cause.size());
  const Instant aborted = Clock::Steady().Now();
  Say(2, abort, cause);
  call.join();
  EXPECT_LT(ended - aborted, kPrompt) << "after " << pumped_ << " bytes";
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(status.message(), cause);
}

}  // namespace
}  // namespace cohort::worker
