// A client is killed, or its worker gets SIGTERM, while the worker still joins for it. The
// rank is free at once, and no group forms with a client that is gone.
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/process_group/process_group.h"
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

// The processes that would run the collectives: "attached", the clients; "remote", the workers.
class JoiningClientKilledTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    ASSERT_NE(mkdtemp(&folder_[0]), nullptr);
    ASSERT_TRUE(coordinator_.Start().ok());
    admin_ = client::AdminClient::Create(testing::Connect(coordinator_.address()));
    for (int rank = 0; rank < 2; ++rank) {
      workers_[rank] = std::make_unique<ChildProcess>(std::vector<std::string>{
          "worker/daemon/cohort-worker", "--coordinator", coordinator_.address(), "--listen",
          Socket(rank), "--metrics-listen", "", "--drain-grace", "1h"});
    }
  }
  void TearDown() override {
    for (auto& worker : workers_) worker.reset();
    std::filesystem::remove_all(folder_);
  }

  std::string Socket(int rank) const { return absl::StrCat("unix:", folder_, "/worker-", rank); }
  std::unique_ptr<ChildProcess> StartClient(int rank, const std::string& member = "") const {
    std::vector<std::string> command = {"tests/failure/testing/rank_main",
                                        coordinator_.address(),
                                        "group",
                                        absl::StrCat(rank),
                                        "2",
                                        "timeout_ms=60000",
                                        absl::StrCat(GetParam(), "=", Socket(rank))};
    if (!member.empty()) command.push_back(absl::StrCat("member=", member));
    return std::make_unique<ChildProcess>(std::move(command));
  }
  std::string Line(ChildProcess& client) const {
    const absl::StatusOr<std::string> line = client.ReadLine(kTimeout);
    EXPECT_TRUE(line.ok()) << line.status() << "\n" << client.ErrorText();
    return line.value_or("nothing");
  }
  // How many joins wait at the coordinator; absent if it does not say.
  std::optional<int> ParkedJoins() const {
    const absl::StatusOr<std::vector<client::ParkedCall>> calls = admin_->DumpWaits("group");
    // The coordinator closes a group that its last member left.
    if (absl::IsNotFound(calls.status())) return 0;
    if (!calls.ok()) return std::nullopt;
    int joins = 0;
    for (const client::ParkedCall& call : *calls) {
      if (absl::StartsWith(call.operation, "join")) ++joins;
    }
    return joins;
  }
  bool AwaitJoins(int count) const {
    return testing::Eventually([&] { return ParkedJoins() == count; });
  }
  // Waits until the group has no members; the coordinator then closes it.
  bool AwaitNobody() const {
    return testing::Eventually([&] {
      const absl::StatusOr<client::GroupInfo> group = admin_->GetGroup("group");
      return absl::IsNotFound(group.status()) || (group.ok() && group->members.empty());
    });
  }
  void ExpectWorks(ChildProcess& one, ChildProcess& other) const {
    for (ChildProcess* const client : {&one, &other})
      EXPECT_THAT(Line(*client), StartsWith("joined"));
    for (ChildProcess* const client : {&one, &other})
      client->WriteLine("once all_reduce 65536 plain");
    for (ChildProcess* const client : {&one, &other}) EXPECT_THAT(Line(*client), StartsWith("OK"));
  }

  // A socket's path has room for little more than a hundred bytes.
  std::string folder_ = "/tmp/cohort-XXXXXX";
  CoordinatorProcess coordinator_{CoordinatorProcess::Options()};
  std::unique_ptr<client::AdminClient> admin_;
  std::unique_ptr<ChildProcess> workers_[2];
};

TEST_P(JoiningClientKilledTest, AnotherMemberGetsItsRank) {
  // The replacement has the same name, as a restarted process does, or another one.
  for (const std::string member : {"", "replacement"}) {
    SCOPED_TRACE(member);
    const std::unique_ptr<ChildProcess> gone = StartClient(0);
    ASSERT_TRUE(AwaitJoins(1));
    const Instant killed = Clock::Steady().Now();
    gone->Kill();
    ASSERT_TRUE(AwaitJoins(0));
    ASSERT_TRUE(AwaitNobody());
    const absl::Duration took = Clock::Steady().Now() - killed;
    EXPECT_LT(took, absl::Seconds(1));
    std::cout << "kill -9 of a joining client to its rank free: " << took << std::endl;
    // Rank 1 waits: no dead client is left to form a group with.
    const std::unique_ptr<ChildProcess> other = StartClient(1);
    ASSERT_TRUE(AwaitJoins(1));
    const std::unique_ptr<ChildProcess> replacement = StartClient(0, member);
    ExpectWorks(*other, *replacement);
    for (ChildProcess* const client : {other.get(), replacement.get()}) client->Kill();
    ASSERT_TRUE(AwaitNobody());
  }
}

TEST_P(JoiningClientKilledTest, WhileAnotherMemberWantsItsRank) {
  const std::unique_ptr<ChildProcess> gone = StartClient(0);
  ASSERT_TRUE(AwaitJoins(1));
  gone->Kill();
  // The replacement joins at once, before or after the coordinator learns of the death.
  const std::unique_ptr<ChildProcess> replacement = StartClient(0);
  const std::unique_ptr<ChildProcess> other = StartClient(1);
  ExpectWorks(*other, *replacement);
}

// All ranks are taken, but another rank does not say how it can be reached.
TEST_P(JoiningClientKilledTest, WhileRanksConnect) {
  const std::unique_ptr<ChildProcess> gone = StartClient(0);
  ASSERT_TRUE(AwaitJoins(1));
  testing::Events events;
  client::ProcessGroupOptions options =
      testing::MemberOptions(testing::Connect(coordinator_.address()), "group", 1, 2);
  options.on_event = events.Slot();
  const absl::StatusOr<std::unique_ptr<client::ProcessGroup>> member =
      client::ProcessGroup::Create(options);
  ASSERT_TRUE(member.ok()) << member.status();
  ASSERT_TRUE(testing::AwaitParked(coordinator_.address(), "group", 1));
  const Instant killed = Clock::Steady().Now();
  gone->Kill();
  const std::optional<client::GroupEvent> left = events.Await(client::EventKind::kLeft);
  ASSERT_TRUE(left.has_value());
  EXPECT_EQ(left->rank, 0);
  EXPECT_LT(Clock::Steady().Now() - killed, absl::Seconds(1));
}

TEST_P(JoiningClientKilledTest, WhileItJoinsAgain) {
  std::unique_ptr<ChildProcess> first = StartClient(0);
  std::unique_ptr<ChildProcess> second = StartClient(1);
  ExpectWorks(*first, *second);
  second->Kill();
  first->WriteLine("rejoin 60000");
  ASSERT_TRUE(AwaitJoins(1));
  const Instant killed = Clock::Steady().Now();
  first->Kill();
  ASSERT_TRUE(AwaitJoins(0));
  ASSERT_TRUE(AwaitNobody());
  EXPECT_LT(Clock::Steady().Now() - killed, absl::Seconds(1));
  second = StartClient(1);
  ASSERT_TRUE(AwaitJoins(1));
  first = StartClient(0);
  ExpectWorks(*first, *second);
}

TEST_P(JoiningClientKilledTest, ADrainingWorkerDoesNotWaitForJoins) {
  const std::unique_ptr<ChildProcess> client = StartClient(0);
  ASSERT_TRUE(AwaitJoins(1));
  const Instant asked = Clock::Steady().Now();
  workers_[0]->Signal(SIGTERM);
  EXPECT_THAT(Line(*client), AllOf(StartsWith("failed UNAVAILABLE "),
                                   HasSubstr("rank 0 of group group"), HasSubstr("is draining")));
  const absl::StatusOr<int> exit = workers_[0]->Wait(kTimeout);
  ASSERT_TRUE(exit.ok()) << exit.status();
  EXPECT_EQ(*exit, 0);
  EXPECT_LT(Clock::Steady().Now() - asked, absl::Seconds(2));
  EXPECT_TRUE(AwaitNobody());
}

INSTANTIATE_TEST_SUITE_P(Forms, JoiningClientKilledTest, ::testing::Values("attached", "remote"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace cohort
