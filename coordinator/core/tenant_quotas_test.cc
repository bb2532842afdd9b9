// Quotas of tenants: a tenant at its limit is refused with the name of the limit, and all other
// tenants go on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"

namespace cohort::coordinator {
namespace {

using ::testing::HasSubstr;

Caller In(const std::string& tenant, const std::string& group = "") {
  Caller caller;
  caller.key = GroupKey{tenant, group};
  return caller;
}

CallId Create(CoreHarness& h, const std::string& tenant, const std::string& group) {
  return h.Make(CreateGroupCall{CoreHarness::Fixed(2)}, In(tenant, group));
}

CallId JoinIn(CoreHarness& h, const std::string& tenant, const std::string& group,
              const std::string& member) {
  JoinCall join;
  join.member = member;
  join.incarnation = 1;
  join.spec = CoreHarness::Fixed(2);
  return h.Make(join, In(tenant, group));
}

CallId Put(CoreHarness& h, const std::string& tenant, const std::string& key, size_t bytes) {
  PutCall put;
  put.key = key;
  put.value = std::string(bytes, 'x');
  return h.Make(put, In(tenant));
}

void ExpectRefused(const CoreHarness& h, CallId id, const std::string& text) {
  EXPECT_EQ(h.StatusOf(id).code(), absl::StatusCode::kResourceExhausted) << h.StatusOf(id);
  EXPECT_THAT(h.StatusOf(id).message(), HasSubstr(text));
}

TEST(TenantQuotas, Groups) {
  Limits limits;
  limits.max_tenant_groups = 2;
  CoreHarness h(limits);
  EXPECT_TRUE(h.StatusOf(Create(h, "a", "one")).ok());
  EXPECT_TRUE(h.StatusOf(Create(h, "a", "two")).ok());
  ExpectRefused(h, Create(h, "a", "three"), "tenant a has 2 groups; max_tenant_groups is 2");
  ExpectRefused(h, JoinIn(h, "a", "three", "w0"), "max_tenant_groups is 2");
  EXPECT_TRUE(h.StatusOf(Create(h, "b", "one")).ok());
  // A group that exists is not a new one.
  EXPECT_TRUE(h.Parked(JoinIn(h, "a", "one", "w0")));
  // A closed group does not count.
  EXPECT_TRUE(h.StatusOf(h.Make(CloseGroupCall{}, In("a", "one"))).ok());
  EXPECT_TRUE(h.StatusOf(Create(h, "a", "three")).ok());
  ExpectRefused(h, Create(h, "a", "four"), "max_tenant_groups is 2");
}

TEST(TenantQuotas, GroupsOfAnEarlierStartCount) {
  Limits limits;
  limits.max_tenant_groups = 2;
  CoreHarness h(limits);
  Create(h, "a", "one");
  Create(h, "a", "two");
  h.Restart();
  ExpectRefused(h, Create(h, "a", "three"), "tenant a has 2 groups");
  EXPECT_TRUE(h.StatusOf(Create(h, "b", "one")).ok());
}

TEST(TenantQuotas, Members) {
  Limits limits;
  limits.max_tenant_members = 3;
  CoreHarness h(limits);
  JoinIn(h, "a", "one", "w0");
  JoinIn(h, "a", "one", "w1");
  const CallId third = JoinIn(h, "a", "two", "w0");
  EXPECT_TRUE(h.Parked(third));
  ExpectRefused(h, JoinIn(h, "a", "two", "w1"), "tenant a has 3 members; max_tenant_members is 3");
  // A join that is refused makes no group.
  ExpectRefused(h, JoinIn(h, "a", "three", "w0"), "max_tenant_members is 3");
  EXPECT_EQ(h.StatusOf(h.Make(GetGroupCall{}, In("a", "three"))).code(),
            absl::StatusCode::kNotFound);
  EXPECT_TRUE(h.Parked(JoinIn(h, "b", "one", "w0")));
  // A repeat of a join is no new member.
  EXPECT_TRUE(h.Parked(JoinIn(h, "a", "two", "w0")));
  EXPECT_TRUE(h.StatusOf(h.Make(CloseGroupCall{}, In("a", "one"))).ok());
  EXPECT_FALSE(h.Parked(JoinIn(h, "a", "two", "w1")));
}

TEST(TenantQuotas, Waiters) {
  Limits limits;
  limits.max_tenant_waiters = 2;
  CoreHarness h(limits);
  const CallId first = h.Make(QueuePopCall{"q"}, In("a"));
  const CallId join = JoinIn(h, "a", "one", "w0");
  EXPECT_TRUE(h.Parked(first));
  EXPECT_TRUE(h.Parked(join));
  for (const CallId id : {h.Make(QueuePopCall{"q"}, In("a")), JoinIn(h, "a", "one", "w1"),
                          JoinIn(h, "a", "two", "w0")}) {
    ExpectRefused(h, id, "tenant a has 2 waiting calls; max_tenant_waiters is 2");
  }
  EXPECT_TRUE(h.Parked(h.Make(QueuePopCall{"q"}, In("b"))));
  // Calls that do not wait go on, and the waits of others end by them.
  EXPECT_TRUE(h.StatusOf(h.Make(QueuePopCall{"q"}, In("a"), absl::ZeroDuration())).code() !=
              absl::StatusCode::kResourceExhausted);
  QueuePushCall push;
  push.queue = "q";
  EXPECT_TRUE(h.StatusOf(h.Make(push, In("a"), absl::ZeroDuration())).ok());
  EXPECT_TRUE(h.StatusOf(first).ok());
  const CallId again = h.Make(QueuePopCall{"q"}, In("a"));
  EXPECT_TRUE(h.Parked(again));
  h.Cancel(again);
  h.Cancel(join);
  EXPECT_TRUE(h.Parked(h.Make(QueuePopCall{"q"}, In("a"))));
}

TEST(TenantQuotas, CallsThatEndTheWaitsOfOthersPassTheQuotaOfWaiters) {
  CoreHarness h;
  const std::vector<CoreHarness::TestMember> members = h.Form(2);
  ASSERT_EQ(members[1].world_size, 2);
  Limits limits;
  limits.max_tenant_waiters = 1;
  h.core().SetLimits(limits);
  const CallId receive = h.As(members[0], Receive(std::nullopt));
  EXPECT_TRUE(h.Parked(receive));
  ExpectRefused(h, h.As(members[0], Receive(std::nullopt, "other")),
                "tenant default has 1 waiting calls; max_tenant_waiters is 1");
  const CallId barrier = h.As(members[0], Barrier());
  EXPECT_TRUE(h.Parked(barrier));
  EXPECT_TRUE(h.StatusOf(h.As(members[1], Barrier())).ok());
  EXPECT_TRUE(h.StatusOf(barrier).ok());
  EXPECT_TRUE(h.StatusOf(h.As(members[1], Send(0, "object"))).ok());
  EXPECT_TRUE(h.StatusOf(receive).ok());
}

TEST(TenantQuotas, ACallThatWaitsHasTheMemoryOfTheService) {
  Limits limits;
  limits.max_tenant_bytes_held = 1 << 20;
  CoreHarness h(limits);
  const auto pop = [&h](int64_t service_bytes) {
    Call call;
    call.id = 1000000 + service_bytes;
    call.caller = In("a");
    call.wait = absl::Seconds(30);
    call.body = QueuePopCall{"q"};
    call.service_bytes = service_bytes;
    Effects effects;
    h.core().Handle(h.now(), std::move(call), effects);
    return effects.replies.empty() ? absl::UnknownError("parked") : effects.replies[0].status;
  };
  Put(h, "a", "key", 10);  // keeps the account of the tenant
  const int64_t before = h.core().account().held();
  EXPECT_EQ(pop(1 << 20).code(), absl::StatusCode::kUnknown);
  EXPECT_LT(h.core().account().held() - before, 8192) << "the service charges the whole account";
  EXPECT_THAT(pop(1).message(), HasSubstr("max_tenant_bytes_held"));
  h.Cancel(1000000 + (1 << 20));
  EXPECT_EQ(pop(2).code(), absl::StatusCode::kUnknown);
}

TEST(TenantQuotas, AReplacementOfALostMemberIsNoNewOne) {
  Limits limits;
  limits.max_tenant_members = 2;
  CoreHarness h(limits);
  auto members = h.Form(2);
  ASSERT_EQ(members[1].world_size, 2);
  EXPECT_TRUE(h.StatusOf(h.As(members[1], LeaveCall{})).ok());
  CoreHarness::TestMember other;
  other.name = "w2";
  other.incarnation = 7;
  EXPECT_TRUE(h.Parked(h.Join(other, CoreHarness::Fixed(2), 1)));
}

TEST(TenantQuotas, Bytes) {
  Limits limits;
  limits.max_tenant_bytes_held = 1 << 20;
  CoreHarness h(limits);
  int puts = 0;
  CallId refused = 0;
  for (; puts < 100; ++puts) {
    const CallId id = Put(h, "a", absl::StrCat("k", puts), 32 << 10);
    if (!h.StatusOf(id).ok()) {
      refused = id;
      break;
    }
  }
  EXPECT_GT(puts, 20);
  EXPECT_LE(puts, 28);  // an eighth is reserved
  ExpectRefused(h, refused, "the limit max_tenant_bytes_held is 1048576");
  ExpectRefused(h, refused, "tenant a holds");
  // It keeps groups from the tenant, too, and their values.
  EXPECT_TRUE(h.StatusOf(Put(h, "b", "k", 512 << 10)).ok());
  EXPECT_TRUE(h.StatusOf(Create(h, "b", "one")).ok());
  // Calls that wait may use the reserved eighth.
  EXPECT_TRUE(h.Parked(h.Make(QueuePopCall{"q"}, In("a"))));
  for (const char* key : {"k0", "k1", "k2"}) h.Make(DeleteCall{key}, In("a"));
  h.ForgetReplies();
  EXPECT_TRUE(h.StatusOf(Put(h, "a", "again", 32 << 10)).ok());
}

TEST(TenantQuotas, NothingIsLeftInTheAccountsOfATenantThatIsGone) {
  CoreHarness h;
  const int64_t before = h.core().account().held();
  Create(h, "a", "one");
  JoinIn(h, "a", "one", "w0");
  Put(h, "a", "k", 1000);
  h.Make(CloseGroupCall{}, In("a", "one"));
  h.Make(DeleteCall{"k"}, In("a"));
  h.ForgetReplies();
  h.Advance(absl::Hours(2));
  EXPECT_LE(h.core().account().held() - before, 1024) << "the name of the closed group";
  EXPECT_EQ(h.core().account().count(QuotaKind::kGroups), 0);
}

}  // namespace
}  // namespace cohort::coordinator
