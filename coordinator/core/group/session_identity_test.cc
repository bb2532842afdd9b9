// A session and a member's name belong to the identity that joined.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/core/testing/core_harness.h"

namespace cohort::coordinator {
namespace {

using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

std::shared_ptr<const std::string> Identity(const char* name) {
  return std::make_shared<const std::string>(name);
}

// Two members of the identity "owner".
std::vector<TestMember> FormAsOwner(CoreHarness& h) {
  std::vector<TestMember> members = {{"w0", 100}, {"w1", 101}};
  std::vector<CallId> joins;
  for (int rank = 0; rank < 2; ++rank) {
    members[rank].identity = Identity("owner");
    joins.push_back(h.Join(members[rank], CoreHarness::Fixed(2), rank));
  }
  for (int rank = 0; rank < 2; ++rank) EXPECT_TRUE(h.JoinAnswered(members[rank], joins[rank]));
  return members;
}

void ExpectDenied(CoreHarness& h, CallId call, const char* what) {
  EXPECT_EQ(h.StatusOf(call).code(), absl::StatusCode::kPermissionDenied) << what;
  EXPECT_THAT(std::string(h.StatusOf(call).message()), HasSubstr("owner, not to thief")) << what;
}

template <typename Body>
Body Named(std::string name) {
  Body body;
  body.name = std::move(name);
  return body;
}

TEST(SessionIdentityTest, NoCallOfAnotherIdentityActsForAMember) {
  CoreHarness h;
  std::vector<TestMember> members = FormAsOwner(h);
  TestMember thief = members[1];  // it knows the session
  thief.identity = Identity("thief");
  SendCall send;
  send.value = {"secret", 0, true};
  ASSERT_TRUE(h.StatusOf(h.As(members[0], SendCall{1, "", {"object", 0, true}})).ok());
  PutCall put;
  put.key = "key";
  put.bind_to_session = true;
  const std::pair<const char*, CallBody> calls[] = {
      {"leave", LeaveCall{}},
      {"keep alive", KeepAliveCall{}},
      {"attach", AttachCall{1, false}},
      {"propose", ProposeViewCall{{}, {}, true}},
      {"ack", AckViewCall{1}},
      {"report error", ReportErrorCall{"x", true}},
      {"close", CloseGroupCall{}},
      {"round", EnterRoundCall{}},
      {"send", send},
      {"receive", ReceiveCall{0}},
      {"expire", ExpireCall{}},
      {"upload", PutBlobCall{"x"}},
      {"put", put},
      {"publish", Named<PublishIdsCall>("c")},
      {"fetch", Named<FetchIdsCall>("c")},
      {"report init", Named<ReportInitCall>("c")},
      {"read", GetGroupCall{}},
  };
  for (const auto& [what, body] : calls) ExpectDenied(h, h.As(thief, body), what);
  // Nothing has happened, and the object waits for its receiver.
  EXPECT_TRUE(h.StatusOf(h.As(members[1], KeepAliveCall{})).ok());
  const auto* received = h.Get<ReceiveReply>(h.As(members[1], ReceiveCall{0}));
  ASSERT_NE(received, nullptr);
  EXPECT_EQ(received->payload.bytes(), "object");
  // The thief does not acknowledge it either.
  ExpectDenied(h, h.As(thief, GetGroupCall{}, {}, {}, {received->receipt}), "acknowledge");
}

TEST(SessionIdentityTest, AJoinDoesNotTakeOverALiveMemberOfAnotherIdentity) {
  CoreHarness h;
  std::vector<TestMember> members = FormAsOwner(h);
  TestMember repeat{"w1", 101};  // the incarnation that GetGroup shows
  repeat.identity = Identity("thief");
  ExpectDenied(h, h.Join(repeat, CoreHarness::Fixed(2), 1), "the same incarnation");
  TestMember next{"w1", 102};
  next.identity = Identity("thief");
  ExpectDenied(h, h.Join(next, CoreHarness::Fixed(2), 1), "another incarnation");
  EXPECT_TRUE(h.StatusOf(h.As(members[1], KeepAliveCall{})).ok());
}

TEST(SessionIdentityTest, TheSameIdentityRepeatsAndReplaces) {
  CoreHarness h;
  std::vector<TestMember> members = FormAsOwner(h);
  TestMember again = members[1];
  ASSERT_TRUE(h.JoinAnswered(again, h.Join(again, CoreHarness::Fixed(2), 1)));
  EXPECT_EQ(again.session, members[1].session);
  // After a restart the same rule holds.
  h.Restart();
  TestMember thief{"w1", 103};
  thief.identity = Identity("thief");
  ExpectDenied(h, h.Join(thief, CoreHarness::Fixed(2), 1), "after a restart");
  TestMember successor{"w1", 104};
  successor.identity = Identity("owner");
  const CallId first = h.Join(successor, CoreHarness::Fixed(2), 1);
  const CallId other = h.Join(members[0], CoreHarness::Fixed(2), 0);
  EXPECT_TRUE(h.JoinAnswered(successor, first));
  EXPECT_TRUE(h.JoinAnswered(members[0], other));
}

}  // namespace
}  // namespace cohort::coordinator
