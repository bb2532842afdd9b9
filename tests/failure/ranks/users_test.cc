// Ranks that are processes of different users share no memory, say so, and use sockets.
#include <grp.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "client/collective/trace/path_report.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::kTimeout;
using ::testing::StartsWith;

constexpr int kRoot = 0;
constexpr int kNobody = 65534;
constexpr int kSomebody = 1000;
// Shorter than ranks wait for one that does not come: ranks of different users find out at once.
constexpr absl::Duration kAtOnce = absl::Seconds(4);

// Root in a user namespace may have no other users.
bool CanBecome(int user) {
  const pid_t child = fork();
  if (child == 0) {
    const auto uid = static_cast<uid_t>(user);
    _exit(setgroups(0, nullptr) == 0 && setgid(uid) == 0 && setuid(uid) == 0 ? 0 : 1);
  }
  int how = 0;
  return child > 0 && waitpid(child, &how, 0) == child && how == 0;
}

class UsersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != kRoot || !CanBecome(kNobody) || !CanBecome(kSomebody)) {
      GTEST_SKIP() << "needs root, to start processes of other users";
    }
    ASSERT_TRUE(coordinator_.Start().ok());
  }

  // Starts one rank for each user.
  void Start(const std::string& group, const std::vector<int>& users,
             const std::vector<std::string>& more = {}) {
    ranks_.clear();
    for (size_t rank = 0; rank < users.size(); ++rank) {
      std::vector<std::string> command = {
          "tests/failure/testing/rank_main", coordinator_.address(), group, absl::StrCat(rank),
          absl::StrCat(users.size()),        "timeout_ms=20000"};
      if (users[rank] != kRoot) command.push_back(absl::StrCat("uid=", users[rank]));
      if (rank < more.size()) command.push_back(more[rank]);
      ranks_.push_back(std::make_unique<ChildProcess>(std::move(command)));
    }
  }

  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    for (const auto& rank : ranks_) lines.push_back(LineOf(*rank));
    return lines;
  }
  static std::string LineOf(ChildProcess& process) {
    const absl::StatusOr<std::string> line = process.ReadLine(kTimeout);
    EXPECT_TRUE(line.ok()) << line.status();
    return line.value_or("nothing");
  }

  void VerifyAll() {
    for (const char* const what :
         {"all_reduce 8 plain", "all_reduce 300000 registered", "exchange 300000 plain"}) {
      for (const auto& rank : ranks_) rank->WriteLine(absl::StrCat("once ", what));
      for (const std::string& line : Lines()) EXPECT_THAT(line, StartsWith("OK")) << what;
    }
  }

  // The text that `cohort group show` prints about the group's paths.
  std::string ShownPaths(const std::string& group) {
    const std::unique_ptr<client::StoreClient> store =
        client::StoreClient::Create(testing::Connect(coordinator_.address()), group);
    std::string shown;
    // Rank 0 writes the note while it joins; the others do not wait for it.
    testing::Eventually([&] {
      const auto kept = store->Get({std::string(client::kPathReportKey)});
      if (!kept.ok() || kept->values.empty()) return false;
      const std::optional<client::PathReport> note =
          client::DecodePathReport(kept->values[0].value);
      shown = note.has_value() ? absl::StrCat(client::FormatPathReport(*note), "; ",
                                              absl::StrJoin(note->why_not, "; "))
                               : "no note";
      return true;
    });
    return shown;
  }

  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

TEST_F(UsersTest, TwoUsersFindOutAtOnceAndUseSockets) {
  const std::vector<int> pairs[] = {{kRoot, kNobody}, {kNobody, kRoot}, {kNobody, kSomebody}};
  for (const std::vector<int>& users : pairs) {
    const std::string group = absl::StrCat("group-", absl::StrJoin(users, "-"));
    SCOPED_TRACE(group);
    const Instant begin = Clock::Steady().Now();
    Start(group, users);
    for (const std::string& line : Lines()) {
      EXPECT_THAT(line, AllOf(StartsWith("joined"), HasSubstr("tcp ")));
    }
    EXPECT_LT(Clock::Steady().Now() - begin, kAtOnce);
    VerifyAll();
    EXPECT_THAT(ShownPaths(group),
                AllOf(HasSubstr("TCP between all ranks"),
                      HasSubstr(absl::StrCat("rank 1 is a process of user ", users[1])),
                      HasSubstr(absl::StrCat("rank 0 of user ", users[0]))));
  }
}

// The ranks change their user, as a daemon does that root started.
TEST_F(UsersTest, RanksThatHaveBecomeTheSameUserShareMemory) {
  Start("group", {kNobody, kNobody});
  for (const std::string& line : Lines()) EXPECT_THAT(line, HasSubstr("shared memory"));
  VerifyAll();
}

TEST_F(UsersTest, OneOfAnotherUserAmongMany) {
  Start("group", {kSomebody, kNobody, kSomebody});
  const std::vector<std::string> lines = Lines();
  EXPECT_THAT(lines[0], HasSubstr("tcp "));
  EXPECT_THAT(lines[1], HasSubstr("tcp "));
  EXPECT_THAT(lines[2], HasSubstr("shared memory"));
  VerifyAll();
  EXPECT_THAT(ShownPaths("group"), AllOf(HasSubstr("ranks 0,2"), HasSubstr("user 65534")));
}

// The daemon runs as root, as this test does.
class UsersOfWorkerTest : public UsersTest {
 protected:
  void SetUp() override {
    UsersTest::SetUp();
    if (IsSkipped()) return;
    worker_ = std::make_unique<CoordinatorProcess>(CoordinatorProcess::Options{
        "worker/daemon/cohort-worker", 0, {"--coordinator", coordinator_.address()}});
    ASSERT_TRUE(worker_->Start().ok());
  }

  std::unique_ptr<CoordinatorProcess> worker_;
};

TEST_F(UsersOfWorkerTest, AClientOfAnotherUserIsNotAttachedAndLearnsWhy) {
  Start("group", {kNobody}, {absl::StrCat("attached=", worker_->address())});
  EXPECT_THAT(Lines()[0], AllOf(StartsWith("failed FAILED_PRECONDITION"), HasSubstr("user 0"),
                                HasSubstr("its client of user 65534")));
}

// A client of another user may make all calls that need no shared memory.
TEST_F(UsersOfWorkerTest, AnotherUsersClientCallsByMessages) {
  const std::string remote = absl::StrCat("remote=", worker_->address());
  Start("group", {kNobody, kRoot}, {remote, remote});
  for (const std::string& line : Lines()) EXPECT_THAT(line, StartsWith("joined"));
  for (const char* const what : {"all_reduce 8 plain", "all_reduce 300000 plain"}) {
    for (const auto& rank : ranks_) rank->WriteLine(absl::StrCat("once ", what));
    for (const std::string& line : Lines()) EXPECT_THAT(line, StartsWith("OK")) << what;
  }
}

}  // namespace
}  // namespace cohort
