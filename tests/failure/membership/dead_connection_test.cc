// A stopped process answers no ping: the coordinator closes its connection, so that its open stream
// does not keep the member alive for ever.
#include <signal.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using client::CauseKind;
using testing::Answers;
using testing::BarrierAnswer;
using testing::BarrierSlot;
using testing::ChildProcess;
using testing::CoordinatorProcess;
using testing::kTimeout;

// Leases end long after the test has given up.
constexpr absl::Duration kLease = absl::Minutes(30);

TEST(DeadConnection, IsClosedWhenItsPeerAnswersNoPing) {
  CoordinatorProcess coordinator(
      {"coordinator/cohort-coordinator", 0, {"--ping-timeout", "2s"}});
  ASSERT_TRUE(coordinator.Start().ok());
  ChildProcess victim({"tests/failure/testing/member_main", coordinator.address(), "group", "1",
                       "2", "member=victim", "lease_ms=1800000"});
  client::ProcessGroupOptions options =
      testing::MemberOptions(testing::Connect(coordinator.address()), "group", 0, 2);
  options.lease = kLease;
  absl::StatusOr<std::unique_ptr<client::ProcessGroup>> group =
      client::ProcessGroup::Create(options);
  ASSERT_TRUE(group.ok()) << group.status();
  ASSERT_EQ(victim.ReadLine(kTimeout).value_or("nothing"), "joined 1 2 1");
  // Waits until the victim's event stream is open.
  victim.WriteLine("await_event");
  ASSERT_TRUE((*group)->ReportError("hello", /*fatal=*/false).ok());
  ASSERT_EQ(victim.ReadLine(kTimeout).value_or("nothing"), "OK ");

  Answers<BarrierAnswer> answers(1);
  client::RoundOptions round;
  round.name = "step";
  round.timeout = kTimeout * 2;
  (*group)->async().Barrier(round, BarrierSlot(answers, 0));
  victim.Signal(SIGSTOP);
  ASSERT_TRUE(answers.AwaitAll()) << "its stream still stands";
  EXPECT_EQ(client::GetErrorInfo(answers[0].status).cause.kind, CauseKind::kConnectionLost)
      << answers[0].status;
  EXPECT_EQ(client::GetErrorInfo(answers[0].status).cause.member, "victim");
}

}  // namespace
}  // namespace cohort
