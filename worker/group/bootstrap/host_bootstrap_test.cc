// Ranks that come late, lie, or send something that is not memory: the other ranks get the reason,
// and no rank waits.
#include "worker/group/bootstrap/host_bootstrap.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/testing/user_namespace.h"
#include "base/unique_fd.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using shm::LocalListener;
using shm::LocalSocket;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kHeapBytes = 4096;
constexpr uid_t kOtherUser = 61234;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

class HostBootstrapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (int rank = 0; rank < 2; ++rank) {
      listeners_.push_back(*LocalListener::Create());
      candidates_.push_back({rank, listeners_.back().name(), kHeapBytes});
    }
  }

  HostBootstrapOptions OptionsOf(int rank) const {
    HostBootstrapOptions options;
    options.rank = rank;
    options.candidates = candidates_;
    options.secret = {1, 2};
    options.listener = &listeners_[static_cast<size_t>(rank)];
    options.heap = std::make_shared<shm::Segment>(*shm::Segment::Create("test", kHeapBytes));
    return options;
  }

  // The first message of rank 1.
  static std::string Hello() {
    struct {
      uint64_t magic = 0x434F484F52540102;
      uint64_t secret[2] = {1, 2};
      int32_t rank = 1;
    } hello;
    std::string bytes(sizeof(hello), '\0');
    std::memcpy(&bytes[0], &hello.magic, sizeof(hello.magic));
    std::memcpy(&bytes[8], hello.secret, sizeof(hello.secret));
    std::memcpy(&bytes[24], &hello.rank, sizeof(hello.rank));
    return bytes;
  }

  // Runs rank 0 with one other rank, whose hello comes with `fds`.
  absl::StatusOr<HostMembers> LeadOne(const std::vector<int>& fds, std::string* answer) {
    std::thread other([&] {
      const absl::StatusOr<LocalSocket> socket = LocalSocket::Connect(listeners_[0].name(), Soon());
      ASSERT_TRUE(socket.ok() && socket->Send(Hello(), fds, Soon()).ok());
      const absl::StatusOr<LocalSocket::Message> message = socket->Receive(Soon());
      *answer = message.ok() ? message->bytes : message.status().ToString();
    });
    absl::StatusOr<HostMembers> members = BootstrapHost(OptionsOf(0), Soon());
    other.join();
    return members;
  }

  void ExpectLeftOut(const absl::StatusOr<HostMembers>& members, const std::string& why) {
    ASSERT_TRUE(members.ok()) << members.status();
    EXPECT_THAT(members->ranks, ElementsAre(0));
    EXPECT_THAT(members->why_not, HasSubstr("rank 1"));
    EXPECT_THAT(members->why_not, HasSubstr(why));
  }

  std::vector<LocalListener> listeners_;
  std::vector<HostCandidate> candidates_;
};

TEST_F(HostBootstrapTest, TwoRanksShareMemory) {
  absl::StatusOr<HostMembers> second;
  std::thread other([&] { second = BootstrapHost(OptionsOf(1), Soon()); });
  const absl::StatusOr<HostMembers> first = BootstrapHost(OptionsOf(0), Soon());
  other.join();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_THAT(first->ranks, ElementsAre(0, 1));
  EXPECT_THAT(second->ranks, ElementsAre(0, 1));
}

// There are more silent connections than rank 0 keeps at once.
TEST_F(HostBootstrapTest, SilentConnectionsDoNotDelayRanks) {
  std::vector<LocalSocket> silent;
  for (int i = 0; i < 100; ++i) {
    silent.push_back(*LocalSocket::Connect(listeners_[0].name(), Soon()));
  }
  HostBootstrapOptions options[] = {OptionsOf(0), OptionsOf(1)};
  for (HostBootstrapOptions& each : options) each.window = absl::Hours(1);
  // If each silent connection caused a delay of a second, the ranks would miss this deadline.
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
  absl::StatusOr<HostMembers> second;
  std::thread other([&] { second = BootstrapHost(options[1], deadline); });
  const absl::StatusOr<HostMembers> first = BootstrapHost(options[0], deadline);
  other.join();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  EXPECT_THAT(first->ranks, ElementsAre(0, 1)) << first->why_not;
  EXPECT_THAT(second->ranks, ElementsAre(0, 1)) << second->why_not;
}

TEST_F(HostBootstrapTest, TheFurtherSegmentIsSharedByAllRanksOrByNoRank) {
  HostBootstrapOptions options[] = {OptionsOf(0), OptionsOf(1)};
  for (HostBootstrapOptions& each : options) each.common_bytes = 8192;
  absl::StatusOr<HostMembers> second;
  std::thread other([&] { second = BootstrapHost(options[1], Soon()); });
  const absl::StatusOr<HostMembers> first = BootstrapHost(options[0], Soon());
  other.join();
  ASSERT_TRUE(first.ok() && second.ok()) << first.status() << second.status();
  ASSERT_EQ(first->common.size(), 8192u);
  ASSERT_EQ(second->common.size(), 8192u);
  first->common.data()[8191] = 'x';
  EXPECT_EQ(second->common.data()[8191], 'x');

  listeners_.clear();
  candidates_.clear();
  SetUp();
  HostBootstrapOptions alone = OptionsOf(0);
  alone.common_bytes = 8192;
  alone.window = absl::Milliseconds(1);
  const absl::StatusOr<HostMembers> formed = BootstrapHost(alone, Soon());
  ASSERT_TRUE(formed.ok()) << formed.status();
  EXPECT_EQ(formed->common.size(), 0u);
}

// The first rank announces a further segment. Its descriptor is not sealed, of another size, or
// missing.
TEST_F(HostBootstrapTest, AFurtherSegmentMustBeSealedAndOfThatSize) {
  const UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  ASSERT_EQ(ftruncate(loose.get(), 8192), 0);
  const absl::StatusOr<shm::Segment> small = shm::Segment::Create("small", 64);
  const absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(2);
  ASSERT_TRUE(small.ok() && space.ok());
  const std::pair<int, std::string> strange[] = {{loose.get(), "its size is not sealed"},
                                                 {small->fd(), "another size"},
                                                 {-1, "welcome is malformed"}};
  for (const auto& [fd, why] : strange) {
    listeners_.clear();
    candidates_.clear();
    SetUp();
    HostBootstrapOptions options = OptionsOf(1);
    options.common_bytes = 8192;
    std::thread first([&, fd = fd, &why = why] {
      const absl::StatusOr<LocalSocket> socket = listeners_[0].Accept(Soon());
      const absl::StatusOr<LocalSocket::Message> hello = socket->Receive(Soon());
      ASSERT_TRUE(hello.ok() && hello->fds.size() == 1);
      const struct {
        uint64_t magic = 0x434F484F52540102;
        int32_t numbers[4] = {2, 1, 0, 1};  // ranks, whether there is a segment, their numbers
      } welcome;
      const int heap = hello->fds[0].get();
      std::vector<int> fds = {space->fd(), heap, heap};
      if (fd >= 0) fds.push_back(fd);
      const absl::string_view bytes(reinterpret_cast<const char*>(&welcome), sizeof(welcome));
      ASSERT_TRUE(socket->Send(bytes, fds, Soon()).ok());
      // If the segment is missing, the further message has no descriptor.
      if (fd < 0) {
        ASSERT_TRUE(socket->Send("m", {}, Soon()).ok());
      }
      EXPECT_THAT(socket->Receive(Soon())->bytes, HasSubstr(why));
      ASSERT_TRUE(socket->Send("r", {}, Soon()).ok());
    });
    EXPECT_FALSE(BootstrapHost(options, Soon()).ok());
    first.join();
  }
}

// Reads of memory that shrinks later would end the reader.
TEST_F(HostBootstrapTest, MemoryWhoseSizeIsNotSealedIsLeftOut) {
  for (const int seals : {0, F_SEAL_GROW | F_SEAL_SEAL}) {
    const UniqueFd loose(memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    ASSERT_EQ(ftruncate(loose.get(), kHeapBytes), 0);
    ASSERT_EQ(fcntl(loose.get(), F_ADD_SEALS, seals), 0);
    // A listener serves one group.
    listeners_.clear();
    candidates_.clear();
    SetUp();
    std::string answer;
    ExpectLeftOut(LeadOne({loose.get()}, &answer), "its size is not sealed");
    EXPECT_THAT(answer, HasSubstr("its size is not sealed"));
  }
}

TEST_F(HostBootstrapTest, ARankWithoutMemoryIsLeftOutAtOnce) {
  std::string answer;
  ExpectLeftOut(LeadOne({}, &answer), "0 descriptors");
  EXPECT_THAT(answer, HasSubstr("0 descriptors"));
}

TEST_F(HostBootstrapTest, MemoryOfAnotherSizeIsLeftOut) {
  const absl::StatusOr<shm::Segment> small = shm::Segment::Create("small", 64);
  std::string answer;
  ExpectLeftOut(LeadOne({small->fd()}, &answer), "another size");
}

TEST_F(HostBootstrapTest, ARankThatComesTooLateIsAloneAndDoesNotWait) {
  HostBootstrapOptions options = OptionsOf(0);
  options.window = absl::Milliseconds(1);
  ASSERT_TRUE(BootstrapHost(options, Soon()).ok());
  const absl::StatusOr<HostMembers> late = BootstrapHost(OptionsOf(1), Soon());
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_THAT(late->ranks, ElementsAre(1));
  EXPECT_THAT(late->why_not, HasSubstr("rank 0"));
}

// The first rank accepts the connection, reads the hello, and closes it.
TEST_F(HostBootstrapTest, ARankThatTheFirstHangsUpOnIsAlone) {
  std::thread first([&] {
    const absl::StatusOr<LocalSocket> socket = listeners_[0].Accept(Soon());
    ASSERT_TRUE(socket.ok() && socket->Receive(Soon()).ok());
  });
  const absl::StatusOr<HostMembers> members = BootstrapHost(OptionsOf(1), Soon());
  first.join();
  ASSERT_TRUE(members.ok()) << members.status();
  EXPECT_THAT(members->ranks, ElementsAre(1));
  EXPECT_THAT(members->why_not, HasSubstr("rank 0"));
}

TEST_F(HostBootstrapTest, MalformedWelcomesAreErrors) {
  const auto welcome = [](std::vector<int32_t> ranks) {
    std::string bytes(16, '\0');
    const uint64_t magic = 0x434F484F52540102;
    const auto count = static_cast<int32_t>(ranks.size());
    std::memcpy(&bytes[0], &magic, sizeof(magic));
    std::memcpy(&bytes[8], &count, sizeof(count));
    return bytes.append(reinterpret_cast<const char*>(ranks.data()), ranks.size() * 4);
  };
  for (const std::string& message :
       {std::string("x"), welcome({}), welcome({0, 0}), welcome({1, 0}), welcome({0, 2}),
        welcome({0, 1, 2}), welcome({1, 1}), welcome({0, 1}).substr(0, 20)}) {
    std::thread first([&] {
      const absl::StatusOr<LocalSocket> socket = listeners_[0].Accept(Soon());
      ASSERT_TRUE(socket.ok() && socket->Receive(Soon()).ok());
      ASSERT_TRUE(socket->Send(message, {}, Soon()).ok());
      EXPECT_THAT(socket->Receive(Soon())->bytes, HasSubstr("welcome is malformed"));
      ASSERT_TRUE(socket->Send("r", {}, Soon()).ok());
    });
    const absl::Status status = BootstrapHost(OptionsOf(1), Soon()).status();
    first.join();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  }
}

TEST_F(HostBootstrapTest, TheErrorOfTheFirstRankReachesWaitingRanks) {
  std::thread first([&] {
    const absl::StatusOr<LocalSocket> socket = listeners_[0].Accept(Soon());
    ASSERT_TRUE(socket.ok() && socket->Receive(Soon()).ok());
    ASSERT_TRUE(socket->Send("frank 7 has no room", {}, Soon()).ok());
  });
  const absl::Status status = BootstrapHost(OptionsOf(1), Soon()).status();
  first.join();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("rank 7 has no room"));
}

// A process of another user that listens at the name of rank 0, whose own process is gone.
class OtherUser {
 public:
  OtherUser() {
    int pipe[2];
    if (pipe2(pipe, O_CLOEXEC) != 0) return;
    reads_ = UniqueFd(pipe[0]);
    const UniqueFd writes(pipe[1]);
    process_ = fork();
    if (process_ == 0) _exit(Listen(writes.get()) ? 0 : 1);
    name_ = ReadOne();
  }

  // Empty: this process cannot start one of another user.
  const std::string& name() const { return name_; }
  // The first message that it got, when it has ended. Absent: it did not get one without memory.
  std::optional<std::string> Heard() {
    const std::string bytes = ReadOne();
    int how = 0;
    if (waitpid(process_, &how, 0) != process_ || how != 0) return std::nullopt;
    return bytes;
  }

 private:
  // Runs in the other process.
  static bool Listen(int pipe) {
    if (setuid(kOtherUser) != 0) return false;
    const absl::StatusOr<LocalListener> listener = LocalListener::Create();
    if (!listener.ok() || !Write(pipe, listener->name())) return false;
    const absl::StatusOr<LocalSocket> rank = listener->Accept(Soon());
    if (!rank.ok()) return false;
    const absl::StatusOr<LocalSocket::Message> hello = rank->Receive(Soon());
    return hello.ok() && hello->fds.empty() && Write(pipe, hello->bytes);
  }
  static bool Write(int pipe, const std::string& bytes) {
    return write(pipe, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size());
  }
  std::string ReadOne() {
    std::string bytes(LocalSocket::kMaxBytes, '\0');
    const ssize_t size = read(reads_.get(), &bytes[0], bytes.size());
    bytes.resize(static_cast<size_t>(std::max<ssize_t>(size, 0)));
    return bytes;
  }

  UniqueFd reads_;
  pid_t process_ = -1;
  std::string name_;
};

class OtherUserTest : public HostBootstrapTest {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
    HostBootstrapTest::SetUp();
  }
  // A process of another user comes to rank 0 as rank 1 does: with the secret and with memory. It
  // gets no memory.
  pid_t Come() {
    const pid_t process = fork();
    if (process != 0) return process;
    if (setuid(kOtherUser) != 0) _exit(1);
    const absl::StatusOr<shm::Segment> heap = shm::Segment::Create("test", kHeapBytes);
    const absl::StatusOr<LocalSocket> first = LocalSocket::Connect(listeners_[0].name(), Soon());
    if (!heap.ok() || !first.ok()) _exit(2);
    const int fd = heap->fd();
    if (!first->Send(Hello(), absl::MakeConstSpan(&fd, 1), Soon()).ok()) _exit(3);
    const absl::StatusOr<LocalSocket::Message> answer = first->Receive(Soon());
    _exit(answer.ok() && answer->fds.empty() && answer->bytes[0] == 'n' ? 0 : 4);
  }
  // Rank 0 says why it is alone.
  void ExpectNoMemory(pid_t other, const std::string& why) {
    ExpectLeftOut(BootstrapHost(OptionsOf(0), Soon()), why);
    int how = 0;
    EXPECT_EQ(waitpid(other, &how, 0), other);
    EXPECT_EQ(how, 0);
  }
  // Rank 1 finds the other user's process and says why it is alone.
  void ExpectNoSecret(OtherUser& other, const std::string& why) {
    candidates_[0].local_socket = other.name();
    HostBootstrapOptions options = OptionsOf(1);
    options.secret = {0x0123456789abcdef, 0xfedcba9876543210};
    const absl::StatusOr<HostMembers> members = BootstrapHost(options, Soon());
    ASSERT_TRUE(members.ok()) << members.status();
    EXPECT_THAT(members->ranks, ElementsAre(1));
    EXPECT_THAT(members->why_not, HasSubstr(why));
    const std::optional<std::string> heard = other.Heard();
    ASSERT_TRUE(heard.has_value());
    EXPECT_EQ(heard->size(), Hello().size());
    for (const uint64_t word : {options.secret.high, options.secret.low}) {
      std::string bytes(sizeof(word), '\0');
      std::memcpy(&bytes[0], &word, sizeof(word));
      EXPECT_THAT(*heard, Not(HasSubstr(bytes)));
    }
  }
};

TEST_F(OtherUserTest, GetsAHelloWithoutTheSecret) {
  OtherUser other;
  ASSERT_NE(other.name(), "");
  ExpectNoSecret(other, absl::StrCat("rank 0 is a process of user ", kOtherUser));
}

// In the rank's namespace the other user has the number of the rank's own user.
TEST_F(OtherUserTest, GetsNoSecretOfTheOverflowUser) {
  if (!testing::HasUserNamespaces()) GTEST_SKIP() << "needs user namespaces";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        OtherUser other;
        const bool ready = testing::EnterUserNamespace(testing::kOverflowUser);
        ExpectNoSecret(other, "rank 0 is a process of a user whom this user namespace");
        _exit(ready && !HasFailure() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(OtherUserTest, GetsNoMemoryWithTheSecret) {
  ExpectNoMemory(Come(), absl::StrCat("rank 1 is a process of user ", kOtherUser));
}

TEST_F(OtherUserTest, GetsNoMemoryOfTheOverflowUser) {
  if (!testing::HasUserNamespaces()) GTEST_SKIP() << "needs user namespaces";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const pid_t other = Come();
        const bool ready = testing::EnterUserNamespace(testing::kOverflowUser);
        ExpectNoMemory(other, "rank 1 is a process of a user whom this user namespace");
        _exit(ready && !HasFailure() ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace cohort::worker
