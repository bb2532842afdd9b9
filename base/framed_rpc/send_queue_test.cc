#include "base/framed_rpc/send_queue.h"

#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>

#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {
namespace {

using Flushed = SendQueue::Flushed;

// The two ends of a connection. Neither blocks.
class SendQueueTest : public ::testing::Test {
 protected:
  void SetUp() override {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    near_ = UniqueFd(ends[0]);
    far_ = UniqueFd(ends[1]);
  }

  // Returns all bytes that have arrived.
  std::string Read() {
    std::string read;
    char part[4096];
    for (ssize_t count = 0; (count = recv(far_.get(), part, sizeof(part), 0)) > 0;) {
      read.append(part, static_cast<size_t>(count));
    }
    return read;
  }
  Flushed Flush() { return queue_.Flush({near_.get(), nullptr}); }
  static SharedBytes Share(std::string bytes, bool own) {
    const auto keep = std::make_shared<const std::string>(std::move(bytes));
    return SharedBytes{keep, *keep, own};
  }

  SendQueue queue_;
  UniqueFd near_;
  UniqueFd far_;
};

TEST_F(SendQueueTest, CopiesAndSharedBytesLeaveInOrder) {
  const std::string large(5000, 's');
  queue_.Append("first");
  queue_.AppendShared(Share(large, true));
  queue_.AppendShared(Share("small", true));
  queue_.Append("last");
  EXPECT_EQ(queue_.size(), 5 + large.size() + 5 + 4);
  EXPECT_EQ(Flush(), Flushed::kAll);
  EXPECT_EQ(Read(), "first" + large + "smalllast");
  EXPECT_EQ(queue_.size(), 0u);
}

// Bytes that several messages share are no memory of this queue, but their place in it is.
TEST_F(SendQueueTest, OwnMemoryIsCountedUntilItIsWritten) {
  const SharedBytes shared = Share(std::string(5000, 's'), false);
  const SharedBytes own = Share(std::string(6000, 'o'), true);
  queue_.Append("1234");
  queue_.AppendShared(shared);
  queue_.AppendShared(own);
  EXPECT_EQ(shared.keep.use_count(), 2) << "shared, not copied";
  EXPECT_EQ(queue_.size(), 11004u);
  EXPECT_GT(queue_.own_size(), 6004u);
  EXPECT_LT(queue_.own_size(), 7004u);
  EXPECT_EQ(Flush(), Flushed::kAll);
  EXPECT_EQ(queue_.own_size(), 0u);
  EXPECT_EQ(shared.keep.use_count(), 1) << "written bytes are let go";
}

TEST_F(SendQueueTest, BytesThatTheSocketDoesNotTakeStay) {
  std::string sent;
  for (int i = 0; i < 200; ++i) {
    const std::string piece(10000, static_cast<char>('a' + i % 26));
    queue_.AppendShared(Share(piece, true));
    sent += piece;
  }
  std::string read;
  int partly = 0;
  for (Flushed flushed = Flush(); flushed != Flushed::kAll; flushed = Flush()) {
    ASSERT_EQ(flushed, Flushed::kPartly);
    ++partly;
    EXPECT_GE(queue_.own_size(), queue_.size()) << "a chunk counts until all of it is written";
    EXPECT_LT(queue_.own_size(), queue_.size() + queue_.size() / 20 + 20000);
    read += Read();
  }
  EXPECT_GT(partly, 0);
  read += Read();
  EXPECT_TRUE(read == sent);
  EXPECT_EQ(queue_.size(), 0u);
  EXPECT_EQ(queue_.own_size(), 0u);
}

TEST_F(SendQueueTest, AClosedConnectionIsBroken) {
  far_ = UniqueFd();
  queue_.Append("x");
  EXPECT_EQ(Flush(), Flushed::kBroken);
}

}  // namespace
}  // namespace cohort::framed_rpc
