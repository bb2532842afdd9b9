#include "base/shm/local_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/shm/segment.h"
#include "gtest/gtest.h"

namespace cohort::shm {
namespace {

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(20); }
Instant AtOnce() { return Clock::Steady().Now() + absl::Milliseconds(20); }

class LocalSocketTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<LocalListener> listener = LocalListener::Create();
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    absl::StatusOr<LocalSocket> client = LocalSocket::Connect(listener_.name(), Soon());
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
    absl::StatusOr<LocalSocket> server = listener_.Accept(Soon());
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  LocalListener listener_;
  LocalSocket client_;
  LocalSocket server_;
};

TEST_F(LocalSocketTest, MessagesStayWholeAndInOrder) {
  ASSERT_TRUE(client_.Send("one", {}, Soon()).ok());
  ASSERT_TRUE(client_.Send(std::string(LocalSocket::kMaxBytes, 'x'), {}, Soon()).ok());
  EXPECT_EQ(server_.Receive(Soon())->bytes, "one");
  EXPECT_EQ(server_.Receive(Soon())->bytes.size(), LocalSocket::kMaxBytes);
}

TEST_F(LocalSocketTest, MemoryIsHandedOver) {
  const absl::StatusOr<Segment> segment = Segment::Create("test", 4096);
  ASSERT_TRUE(segment.ok());
  const std::vector<int> fds(LocalSocket::kMaxFds, segment->fd());
  ASSERT_TRUE(server_.Send("memory", fds, Soon()).ok());
  absl::StatusOr<LocalSocket::Message> message = client_.Receive(Soon());
  ASSERT_TRUE(message.ok()) << message.status();
  ASSERT_EQ(message->fds.size(), LocalSocket::kMaxFds);
  const absl::StatusOr<Segment> mapped = Segment::Map(message->fds.back().release(), 4096);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  segment->data()[17] = 4;
  EXPECT_EQ(mapped->data()[17], 4);
}

TEST_F(LocalSocketTest, ThePeerHasItsProcessAndUser) {
  EXPECT_EQ(server_.peer().pid, getpid());
  EXPECT_EQ(server_.peer().uid, geteuid());
}

TEST_F(LocalSocketTest, AProcessThatIsKilledIsGoneAtOnce) {
  const pid_t child = fork();
  if (child == 0) {
    absl::StatusOr<LocalSocket> socket = LocalSocket::Connect(listener_.name(), Soon());
    pause();
    _exit(0);
  }
  absl::StatusOr<LocalSocket> socket = listener_.Accept(Soon());
  ASSERT_TRUE(socket.ok()) << socket.status();
  EXPECT_EQ(socket->Receive(AtOnce()).status().code(), absl::StatusCode::kDeadlineExceeded);
  kill(child, SIGKILL);
  EXPECT_EQ(socket->Receive(Soon()).status().code(), absl::StatusCode::kUnavailable);
  waitpid(child, nullptr, 0);
}

TEST_F(LocalSocketTest, NothingWaitsBeyondItsDeadline) {
  EXPECT_EQ(client_.Receive(AtOnce()).status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(listener_.Accept(AtOnce()).status().code(), absl::StatusCode::kDeadlineExceeded);
  absl::Status status;
  while (status.ok()) status = client_.Send("unread", {}, AtOnce());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
}

TEST_F(LocalSocketTest, ConnectingToAClosedListenerIsUnavailable) {
  const std::string name = listener_.name();
  listener_ = LocalListener();
  EXPECT_EQ(LocalSocket::Connect(name, Soon()).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(LocalSocket::Connect("cohort-none", Soon()).status().code(),
            absl::StatusCode::kUnavailable);
}

// A receiver that took fewer descriptors than were sent would act on the wrong ones.
TEST_F(LocalSocketTest, AMessageWithMoreDescriptorsThanItTakesIsRefused) {
  constexpr size_t kSent = LocalSocket::kMaxFds + 2;
  char byte = 'x';
  iovec piece = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(kSent * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(kSent * sizeof(int));
  const std::vector<int> fds(kSent, STDIN_FILENO);
  std::memcpy(CMSG_DATA(header), fds.data(), kSent * sizeof(int));
  ASSERT_EQ(sendmsg(client_.fd(), &message, MSG_NOSIGNAL), 1);
  const absl::StatusOr<LocalSocket::Message> received = server_.Receive(Soon());
  EXPECT_EQ(received.status().code(), absl::StatusCode::kUnavailable) << received.status();
}

TEST_F(LocalSocketTest, TooMuchIsRefusedBeforeItIsSent) {
  EXPECT_EQ(client_.Send("", {}, Soon()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(client_.Send(std::string(LocalSocket::kMaxBytes + 1, 'x'), {}, Soon()).code(),
            absl::StatusCode::kInvalidArgument);
  const std::vector<int> fds(LocalSocket::kMaxFds + 1, 0);
  EXPECT_EQ(client_.Send("x", fds, Soon()).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort::shm
