#include "worker/daemon/server/attach_server.h"

#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/id128.h"
#include "base/shm/segment.h"
#include "base/testing/no_new_threads.h"
#include "base/testing/user_namespace.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uid_t kOtherUser = 61234;
constexpr int kConnections = 100;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(20); }

ptrdiff_t CountIn(const char* folder) {
  return std::distance(std::filesystem::directory_iterator(folder), {});
}

// Counts sockets alone: a session of an earlier test may still close its memory on another thread.
ptrdiff_t CountSockets() {
  ptrdiff_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
    if (target.compare(0, 7, "socket:") == 0) ++count;
  }
  return count;
}

// Waits until other threads make `condition` true.
template <typename Condition>
bool Eventually(Condition condition) {
  const Instant end = Soon();
  while (Clock::Steady().Now() < end) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(2));
  }
  return condition();
}

std::string Hello(const std::string& session) {
  v1::AttachHello hello;
  hello.set_magic(v1::ATTACH_PROTOCOL_MAGIC);
  hello.set_version(v1::ATTACH_PROTOCOL_VERSION);
  hello.set_session(session);
  return hello.SerializeAsString();
}

// Returns the server's answer to a hello.
absl::StatusOr<v1::AttachAnswer> Attach(const std::string& name, const std::string& session) {
  absl::StatusOr<shm::LocalSocket> socket = shm::LocalSocket::Connect(name, Soon());
  if (!socket.ok()) return socket.status();
  const absl::Status sent = socket->Send(Hello(session), {}, Soon());
  if (!sent.ok()) return sent;
  absl::StatusOr<shm::LocalSocket::Message> message = socket->Receive(Soon());
  if (!message.ok()) return message.status();
  v1::AttachAnswer answer;
  if (!answer.ParseFromString(message->bytes)) return absl::InternalError("no answer");
  return answer;
}

class AttachServerTest : public ::testing::Test {
 protected:
  explicit AttachServerTest(QuotaLimits limits = {}) : sessions_(Quotas(limits)) {
    absl::StatusOr<std::unique_ptr<AttachServer>> server = AttachServer::Start(sessions_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  void ExpectServes() {
    const absl::StatusOr<std::shared_ptr<Session>> session = sessions_.Open({"test", getpid(), "", ""}, Caller());
    ASSERT_TRUE(session.ok()) << session.status();
    const absl::StatusOr<v1::AttachAnswer> answer =
        Attach(server_->name(), (*session)->id().ToBytes());
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(answer->code(), 0) << answer->text();
  }

  SessionTable sessions_;
  std::unique_ptr<AttachServer> server_;
};

TEST_F(AttachServerTest, WithoutAThreadTheClientGetsAnErrorAndTheNextIsServed) {
  ExpectServes();
  {
    const testing::NoNewThreads refuse;
    for (int i = 0; i < 20; ++i) {  // more than the server keeps
      const absl::StatusOr<v1::AttachAnswer> answer = Attach(server_->name(), "any");
      ASSERT_TRUE(answer.ok()) << answer.status();
      EXPECT_EQ(answer->code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
      EXPECT_THAT(answer->text(), AllOf(HasSubstr("cannot start thread"), HasSubstr("RLIMIT_NPROC")));
    }
  }
  ExpectServes();
}

// A data loader that the client forked keeps the connection open after the client's death.
TEST_F(AttachServerTest, AClientIsGoneWithItsProcessThoughAChildKeepsItsConnection) {
  const absl::StatusOr<std::shared_ptr<Session>> session = sessions_.Open({"trainer", 1, "host-a", ""}, Caller());
  ASSERT_TRUE(session.ok()) << session.status();
  int child_ends[2];  // the child of the client ends with this test
  ASSERT_EQ(pipe(child_ends), 0);
  const pid_t client = fork();
  if (client == 0) {
    close(child_ends[1]);
    const absl::StatusOr<shm::LocalSocket> socket =
        shm::LocalSocket::Connect(server_->name(), Soon());
    if (!socket.ok() || !socket->Send(Hello((*session)->id().ToBytes()), {}, Soon()).ok()) {
      _exit(1);
    }
    if (!socket->Receive(Soon()).ok()) _exit(2);
    if (fork() > 0) _exit(0);
    char nothing;
    [[maybe_unused]] const ssize_t end = read(child_ends[0], &nothing, 1);
    _exit(0);
  }
  close(child_ends[0]);
  const UniqueFd keeps_the_child(child_ends[1]);
  int status = -1;
  ASSERT_EQ(waitpid(client, &status, 0), client);
  ASSERT_EQ(status, 0);
  EXPECT_TRUE(Eventually([&] { return (*session)->ended(); })) << "its process is gone";
}

TEST_F(AttachServerTest, ClientsThatAreGoneGiveTheirDescriptorsBackAtOnce) {
  const ptrdiff_t before = CountSockets();
  {
    std::vector<shm::LocalSocket> silent;
    for (int i = 0; i < 10; ++i) {
      silent.push_back(*shm::LocalSocket::Connect(server_->name(), Soon()));
    }
    ASSERT_TRUE(Eventually([&] { return CountSockets() >= before + 20; }));
  }
  EXPECT_TRUE(Eventually([&] { return CountSockets() <= before; }))
      << CountSockets() << " sockets are open; there were " << before;
}

class DescriptorLimitTest : public AttachServerTest {
 protected:
  DescriptorLimitTest() : AttachServerTest({20, 8}) {}
};

TEST_F(DescriptorLimitTest, RegisteredMemoryCountsUntilItIsFreed) {
  const std::shared_ptr<Session> session = *sessions_.Open({"test", getpid(), "", ""}, Caller());
  const shm::LocalSocket socket = *shm::LocalSocket::Connect(server_->name(), Soon());
  const auto ask = [&](const std::string& bytes, absl::Span<const int> fds) {
    EXPECT_TRUE(socket.Send(bytes, fds, Soon()).ok());
    v1::AttachAnswer answer;
    EXPECT_TRUE(answer.ParseFromString(socket.Receive(Soon())->bytes));
    return answer;
  };
  ASSERT_EQ(ask(Hello(session->id().ToBytes()), {}).code(), 0);
  const shm::Segment segment = *shm::Segment::Create("test", 4096);
  const int fd = segment.fd();
  v1::AttachRequest request;
  request.mutable_register_memory()->set_bytes(4096);
  const auto add = [&] { return ask(request.SerializeAsString(), absl::MakeConstSpan(&fd, 1)); };
  // The session and its client hold two descriptors each.
  for (int i = 0; i < 4; ++i) ASSERT_EQ(add().code(), 0);
  const ptrdiff_t open = CountIn("/proc/self/fd");
  for (int i = 0; i < 100; ++i) {
    const v1::AttachAnswer refused = add();
    ASSERT_EQ(refused.code(), static_cast<int>(absl::StatusCode::kResourceExhausted));
    ASSERT_THAT(refused.text(), HasSubstr("registered memory takes 1 file descriptors; this "
                                          "session holds 8 of 8 (--max-descriptors-per-session)"));
  }
  EXPECT_TRUE(Eventually([&] { return CountIn("/proc/self/fd") <= open; }));
  ASSERT_TRUE(session->tensors().Free(1).ok());
  EXPECT_EQ(add().code(), 0);
}

TEST_F(DescriptorLimitTest, ClientsOfOneSessionCount) {
  const std::shared_ptr<Session> session = *sessions_.Open({"test", getpid(), "", ""}, Caller());
  std::vector<shm::LocalSocket> clients;
  const auto attach = [&] {
    clients.push_back(*shm::LocalSocket::Connect(server_->name(), Soon()));
    EXPECT_TRUE(clients.back().Send(Hello(session->id().ToBytes()), {}, Soon()).ok());
    v1::AttachAnswer answer;
    EXPECT_TRUE(answer.ParseFromString(clients.back().Receive(Soon())->bytes));
    return answer;
  };
  for (int i = 0; i < 3; ++i) ASSERT_EQ(attach().code(), 0);
  EXPECT_THAT(attach().text(), HasSubstr("holds 8 of 8 (--max-descriptors-per-session)"));
}

TEST_F(DescriptorLimitTest, SilentClientsLeaveDescriptorsToSessions) {
  std::vector<shm::LocalSocket> silent;
  for (int i = 0; i < 20; ++i) {
    silent.push_back(*shm::LocalSocket::Connect(server_->name(), Soon()));
  }
  const absl::StatusOr<v1::AttachAnswer> refused = Attach(server_->name(), "any");
  ASSERT_TRUE(refused.ok()) << refused.status();
  EXPECT_THAT(refused->text(), HasSubstr("clients that have not said their session hold 8 of 8 "
                                         "(--max-descriptors-per-session)"));
  EXPECT_TRUE(sessions_.Open({"test", getpid(), "", ""}, Caller()).ok());
}

TEST_F(DescriptorLimitTest, SessionsCountInAll) {
  std::vector<std::shared_ptr<Session>> sessions;
  for (int i = 0; i < 10; ++i) sessions.push_back(*sessions_.Open({"test", getpid(), "", ""}, Caller()));
  const absl::Status refused = sessions_.Open({"test", getpid(), "", ""}, Caller()).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("hold 20 of 20 (--max-descriptors)"));
}

// Runs in a child process, which ends with the result.
bool OpensConnectionsAsOtherUser(const std::string& name, int told, int done) {
  if (setgroups(0, nullptr) != 0 || setgid(kOtherUser) != 0 || setuid(kOtherUser) != 0)
    return false;
  const absl::StatusOr<v1::AttachAnswer> answer = Attach(name, "any");
  if (!answer.ok()) return false;
  if (answer->code() != static_cast<int>(absl::StatusCode::kPermissionDenied)) return false;
  std::vector<shm::LocalSocket> silent;
  for (int i = 0; i < kConnections; ++i) {
    absl::StatusOr<shm::LocalSocket> socket = shm::LocalSocket::Connect(name, Soon());
    if (!socket.ok()) return false;
    silent.push_back(*std::move(socket));
  }
  char byte = 1;
  if (write(told, &byte, 1) != 1) return false;
  return read(done, &byte, 1) == 0;
}

TEST_F(AttachServerTest, AnotherUserTakesNoThreads) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  ExpectServes();
  // The previous session may still be attached.
  const ptrdiff_t threads = CountIn("/proc/self/task");
  const ptrdiff_t descriptors = CountIn("/proc/self/fd");
  int told[2], done[2];
  ASSERT_EQ(pipe(told), 0);
  ASSERT_EQ(pipe(done), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(done[1]);
    _exit(OpensConnectionsAsOtherUser(server_->name(), told[1], done[0]) ? 0 : 1);
  }
  const UniqueFd reads(told[0]), closes_late(done[0]);
  close(told[1]);
  char byte = 0;
  const bool opened = read(reads.get(), &byte, 1) == 1;
  if (opened) {
    // The server accepts connections in order, so it has seen the other user's before this one.
    ExpectServes();
    EXPECT_LE(CountIn("/proc/self/task"), threads + 1);
    EXPECT_LE(CountIn("/proc/self/fd"), descriptors + 40);
  }
  close(done[1]);
  int how = 0;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
  EXPECT_TRUE(opened);
}

// Runs in a child process, which ends with the result. Reads the listener's name and a session.
bool IsRefusedAsOtherUser(int told) {
  char session[Id128::kBytes];
  char name[128];
  if (geteuid() == 0 && setuid(kOtherUser) != 0) return false;
  if (read(told, session, sizeof(session)) != sizeof(session)) return false;
  const ssize_t length = read(told, name, sizeof(name));
  if (length <= 0) return false;
  const absl::StatusOr<v1::AttachAnswer> answer =
      Attach({name, static_cast<size_t>(length)}, {session, sizeof(session)});
  return answer.ok() && answer->code() == static_cast<int>(absl::StatusCode::kPermissionDenied) &&
         absl::StrContains(answer->text(), "whom this user namespace does not map");
}

// The worker's user has the overflow number in its namespace, so its client seems to be of that
// user. The function does not return.
void ServeInUserNamespace() {
  int told[2];
  if (pipe(told) != 0) _exit(2);
  const pid_t client = fork();
  if (client == 0) {
    close(told[1]);
    _exit(IsRefusedAsOtherUser(told[0]) ? 0 : 1);
  }
  if (!testing::EnterUserNamespace(testing::kOverflowUser)) _exit(3);
  SessionTable sessions;
  const std::unique_ptr<AttachServer> server = AttachServer::Start(sessions).value();
  const auto session = sessions.Open({"test", getpid(), "", ""}, Caller()).value();
  const std::string bytes = absl::StrCat(session->id().ToBytes(), server->name());
  if (write(told[1], bytes.data(), bytes.size()) < 0) _exit(4);
  close(told[1]);
  int how = 0;
  waitpid(client, &how, 0);
  _exit(how == 0 ? 0 : 1);
}

TEST(AttachServerUserTest, TheOverflowUserOfANamespaceIsNotAttached) {
  if (!testing::HasUserNamespaces()) GTEST_SKIP() << "needs user namespaces";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(ServeInUserNamespace(), ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cohort::worker
