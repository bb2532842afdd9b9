// Everything that callers make the coordinator keep is charged, bounded, and given back.
#include "coordinator/core/interface/memory_account.h"

#include <malloc.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "coordinator/core/core.h"
#include "coordinator/core/testing/core_harness.h"
#include "coordinator/core/testing/test_calls.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using TestMember = CoreHarness::TestMember;

// Bytes that malloc has given out.
int64_t Allocated() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
}

Caller Of(const std::string& tenant, const std::string& group, uint64_t operation = 0) {
  Caller caller;
  caller.key = GroupKey{tenant, group};
  if (operation != 0) caller.operation_id = Id128{7, operation};
  return caller;
}

// A core without a harness: its replies and records are dropped.
struct Bare {
  explicit Bare(const Limits& limits = {}, std::shared_ptr<TenantAccounts> accounts = nullptr)
      : core(limits, 1, std::move(accounts)) {}

  absl::Status Make(CallBody body, Caller caller, absl::Duration wait = absl::ZeroDuration()) {
    Call call;
    call.id = ++last_id;
    call.caller = std::move(caller);
    call.wait = wait;
    call.entropy = Id128{9, last_id};
    call.body = std::move(body);
    Effects effects;
    effects.wants_records = false;
    core.Handle(now, std::move(call), effects);
    for (const Reply& reply : effects.replies) {
      if (reply.id == last_id) return reply.status;
    }
    return absl::OkStatus();  // parked
  }
  void Advance(absl::Duration by) {
    now += by;
    Effects effects;
    core.Tick(now, effects);
  }
  int64_t Held(MemoryKind kind) const { return core.account().held(kind); }

  Core core;
  Instant now = absl::UnixEpoch() + absl::Hours(1);
  CallId last_id = 0;
};

TEST(MemoryAccount, AGroupCostsWhatItHoldsAndNotWhatItMayHold) {
  Bare bare;
  constexpr int kGroups = 500;
  const int64_t before = Allocated();
  for (int i = 0; i < kGroups; ++i) {
    ASSERT_TRUE(
        bare.Make(CreateGroupCall{CoreHarness::Fixed(16384)}, Of("t", absl::StrCat("g", i))).ok());
  }
  const int64_t each = (Allocated() - before) / kGroups;
  const int64_t charged = bare.Held(MemoryKind::kGroups) / kGroups;
  EXPECT_LT(each, 10000);
  EXPECT_GE(charged, each * 9 / 10) << each << " bytes allocated for each";
  EXPECT_LE(charged, each * 2) << each << " bytes allocated for each";
}

TEST(MemoryAccount, LabelsAreCharged) {
  Bare bare;
  GroupSpec spec = CoreHarness::Fixed(2);
  ASSERT_TRUE(bare.Make(CreateGroupCall{spec}, Of("t", "plain")).ok());
  const int64_t plain = bare.Held(MemoryKind::kGroups);
  for (int i = 0; i < 64; ++i) spec.labels[absl::StrCat("label", i)] = std::string(1000, 'x');
  ASSERT_TRUE(bare.Make(CreateGroupCall{spec}, Of("t", "labelled")).ok());
  EXPECT_GT(bare.Held(MemoryKind::kGroups), 2 * plain + 64000);
}

// Compares malloc's memory for objects of one kind with their charge.
TEST(MemoryAccount, EstimatesAreNoLessThanWhatMallocSays) {
  struct Case {
    const char* name;
    MemoryKind kind;
    CallBody (*make)(int);
    absl::Duration wait;
    bool operation;
  };
  const Case kCases[] = {
      {"keys", MemoryKind::kKeys,
       [](int i) -> CallBody { return PutCall{absl::StrCat("a/key/of/some/length/", i), "v"}; },
       absl::ZeroDuration(), false},
      {"queue items", MemoryKind::kQueues,
       [](int i) -> CallBody { return QueuePushCall{absl::StrCat("a/queue/of/length/", i), "v"}; },
       absl::ZeroDuration(), false},
      {"parked pops", MemoryKind::kCalls,
       [](int i) -> CallBody { return QueuePopCall{absl::StrCat("a/queue/of/length/", i)}; },
       absl::Hours(1), true},
      {"parked gets", MemoryKind::kCalls,
       [](int i) -> CallBody {
         return GetCall{{absl::StrCat("a/key/of/some/length/", i)}, true};
       },
       absl::Hours(1), false},
      {"answers", MemoryKind::kAnswers,
       [](int i) -> CallBody { return DeleteCall{absl::StrCat("k", i)}; }, absl::ZeroDuration(),
       true},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(c.name);
    Bare bare;
    constexpr int kCount = 4000;
    ASSERT_TRUE(bare.Make(PutCall{"first", "v"}, Of("t", "")).ok());
    const int64_t before = Allocated();
    const int64_t charged_before = bare.core.account().held();
    const int64_t kind_before = bare.Held(c.kind);
    for (int i = 0; i < kCount; ++i) {
      Caller caller = Of("t", "", c.operation ? i + 1 : 0);
      caller.operation_id.high = c.operation ? i + 1 : 0;
      ASSERT_TRUE(bare.Make(c.make(i), caller, c.wait).ok());
    }
    const int64_t allocated = Allocated() - before;
    const int64_t charged = bare.core.account().held() - charged_before;
    EXPECT_GE(charged, allocated * 9 / 10)
        << allocated / kCount << " bytes allocated for each, " << charged / kCount << " charged";
    EXPECT_LE(charged, allocated * 4)
        << allocated / kCount << " bytes allocated for each, " << charged / kCount << " charged";
    EXPECT_GT(bare.Held(c.kind), kind_before);
  }
}

TEST(MemoryAccount, EverythingIsGivenBackWhenTheGroupIsClosed) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  h.As(members[0], Send(1, std::string(1000, 'x'), "a tag of more than fifteen"));
  h.As(members[1], Receive(2));
  h.As(members[0], Round(RoundKind::kAllGather, "a round of more than fifteen", "value"));
  h.As(members[0], PutCall{"a/key/of/more/than/fifteen", "v"}, absl::ZeroDuration(), Id128{1, 1});
  h.As(members[0], QueuePushCall{"a/queue/of/more/than/fifteen", "v"});
  h.As(members[1], QueuePopCall{"a/queue/of/more/than/fifteen"}, absl::Seconds(9), Id128{1, 2});
  h.As(members[1], QueuePopCall{"another queue"}, absl::Seconds(9), Id128{1, 3});
  h.As(members[2], PublishIdsCall{"comm", {std::string(128, 'i')}});
  h.As(members[1], ReportInitCall{"comm", InitPhase::kFailed, "a detail of more than fifteen"});
  h.As(members[0], PutBlobCall{std::string(500, 'b')});
  h.As(members[0], ReportErrorCall{"a detail of more than fifteen"});
  h.As(members[2], WatchGroupCall{});
  for (MemoryKind kind :
       {MemoryKind::kGroups, MemoryKind::kMembers, MemoryKind::kObjects, MemoryKind::kRounds,
        MemoryKind::kKeys, MemoryKind::kKeyEvents, MemoryKind::kQueues, MemoryKind::kAnswers,
        MemoryKind::kCalls, MemoryKind::kEvents, MemoryKind::kUploads, MemoryKind::kUniqueIds}) {
    EXPECT_GT(h.core().account().held(kind), 0) << MemoryKindName(kind);
  }
  h.Make(CloseGroupCall{"done"}, Caller{h.key(), 0, {}, {}, {}});
  h.ForgetReplies();
  for (int kind = 0; kind < kMemoryKindCount; ++kind) {
    if (static_cast<MemoryKind>(kind) == MemoryKind::kClosedNames) continue;
    EXPECT_EQ(h.core().account().held(static_cast<MemoryKind>(kind)), 0)
        << MemoryKindName(static_cast<MemoryKind>(kind));
  }
}

TEST(MemoryAccount, AStoreThatIsOnlyReadLeavesNothing) {
  Bare bare;
  for (int i = 0; i < 1000; ++i) {
    const Caller caller = Of(absl::StrCat("tenant", i), "");
    ASSERT_TRUE(bare.Make(GetCall{{"k"}}, caller).ok());
    ASSERT_TRUE(bare.Make(RangeCall{}, caller).ok());
    ASSERT_TRUE(bare.Make(DeleteCall{"k"}, caller).ok());
    ASSERT_TRUE(bare.Make(QueuePopCall{"q"}, caller).ok());
    ASSERT_TRUE(bare.Make(WatchKeysCall{""}, caller).ok());
  }
  EXPECT_EQ(bare.core.account().held(), 0);
}

TEST(MemoryAccount, AStoreGoesWhenNothingIsKeptAndItsRevisionsDoNotComeAgain) {
  CoreHarness h;
  const Caller caller = Of("t", "");
  const auto put = [&] {
    return h.Get<PutReply>(h.Make(PutCall{"k", "v"}, caller, absl::ZeroDuration()))->revision;
  };
  const int64_t first = put();
  EXPECT_GT(h.core().account().held(MemoryKind::kNamespaces), 0);
  h.Make(DeleteCall{"k"}, caller, absl::ZeroDuration());
  h.Make(PutCall{"k", "v"}, Of("t", "", 1), absl::ZeroDuration());
  h.Make(DeleteCall{"k"}, caller, absl::ZeroDuration());
  // The first answer is kept for its repeats.
  h.Advance(absl::Minutes(5));
  EXPECT_GT(h.core().account().held(MemoryKind::kNamespaces), 0);
  h.Advance(absl::Minutes(20));
  h.ForgetReplies();
  EXPECT_EQ(h.core().account().held(), 0);
  EXPECT_GT(put(), first + 3);
}

TEST(MemoryAccount, AParkedPopThatGoesAwayTakesItsStoreAlong) {
  CoreHarness h;
  const CallId pop = h.Make(QueuePopCall{"q"}, Of("t", ""), absl::Seconds(30));
  EXPECT_TRUE(h.Parked(pop));
  EXPECT_GT(h.core().account().held(MemoryKind::kNamespaces), 0);
  h.Cancel(pop);
  EXPECT_EQ(h.core().account().held(), 0);
}

TEST(MemoryAccount, LimitsAreTotalsOfAllShards) {
  Limits limits;
  limits.max_bytes_held = 400000;
  limits.max_groups = 3;
  const auto accounts = std::make_shared<TenantAccounts>(std::make_shared<MemoryAccount>());
  Bare one(limits, accounts), other(limits, accounts);
  ASSERT_TRUE(one.Make(PutCall{"k", std::string(200000, 'x')}, Of("t", "")).ok());
  const absl::Status full = other.Make(PutCall{"k", std::string(200000, 'x')}, Of("u", ""));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 3; ++i) {
    Bare& shard = i % 2 == 0 ? one : other;
    EXPECT_TRUE(
        shard.Make(CreateGroupCall{CoreHarness::Fixed(1)}, Of("t", absl::StrCat("g", i))).ok());
  }
  const absl::Status fourth = other.Make(CreateGroupCall{CoreHarness::Fixed(1)}, Of("t", "g4"));
  EXPECT_THAT(std::string(fourth.message()), HasSubstr("max_groups is 3"));
}

TEST(MemoryAccount, ARefusalNamesTheLimitItsValueTheKindAndWhatIsHeld) {
  Limits limits;
  limits.max_bytes_held = 80000;
  struct Case {
    MemoryKind kind;
    CallBody body;
    Caller caller;
    absl::Duration wait;
  };
  const Case kCases[] = {
      {MemoryKind::kGroups, CreateGroupCall{CoreHarness::Fixed(2)}, Of("t", "g")},
      {MemoryKind::kNamespaces, PutCall{"k", "v"}, Of("new", "")},
      {MemoryKind::kKeys, PutCall{"k", "v"}, Of("t", "")},
      {MemoryKind::kQueues, QueuePushCall{"k", "v"}, Of("t", "")},
      {MemoryKind::kCalls, QueuePopCall{"k"}, Of("t", ""), absl::Seconds(1)},
  };
  for (const Case& c : kCases) {
    SCOPED_TRACE(MemoryKindName(c.kind));
    Bare bare(limits);
    ASSERT_TRUE(bare.Make(PutCall{"first", "v"}, Of("t", "")).ok());
    absl::Status status;
    // Fills the last eighth too: with calls that wait.
    for (int i = 0; i < 1000 && status.ok(); ++i) {
      status = bare.Make(GetCall{{absl::StrCat(i)}, true}, Of("t", ""), absl::Hours(1));
    }
    EXPECT_LE(bare.core.account().held(), limits.max_bytes_held);
    status = bare.Make(c.body, c.caller, c.wait);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("limit max_bytes_held is 80000"), HasSubstr(MemoryKindName(c.kind)),
                      HasSubstr(absl::StrCat("holds ", bare.core.account().held(), " bytes"))));
  }
}

TEST(MemoryAccount, MembersOfAFullCoordinatorStillReceiveAndPassBarriers) {
  Limits limits;
  limits.max_bytes_held = 200000;
  CoreHarness h(limits);
  std::vector<TestMember> members = h.Form(2);
  int sent = 0;
  while (sent < 1000) {
    const CallId send = h.As(members[0], Send(1, std::string(5000, 'x')));
    if (!h.StatusOf(send).ok()) {
      EXPECT_THAT(std::string(h.StatusOf(send).message()), HasSubstr("max_bytes_held is 200000"));
      break;
    }
    ++sent;
  }
  EXPECT_GT(sent, 10);
  EXPECT_LT(sent, 40);
  const CallId first = h.As(members[0], Barrier("b"));
  h.As(members[1], Barrier("b"));
  ASSERT_NE(h.Round(first), nullptr) << h.StatusOf(first);
  EXPECT_EQ(h.Round(first)->outcome, RoundOutcome::kReleased);
  for (int i = 0; i < sent; ++i) {
    ASSERT_NE(h.Get<ReceiveReply>(h.As(members[1], Receive(0))), nullptr);
  }
  h.ForgetReplies();
  EXPECT_TRUE(h.StatusOf(h.As(members[0], Send(1, std::string(5000, 'x')))).ok());
}

TEST(MemoryAccount, ARestartChargesNoMoreThanBefore) {
  CoreHarness h;
  std::vector<TestMember> members = h.Form(3);
  for (int i = 0; i < 20; ++i) {
    const std::string name = absl::StrCat("a name of more than fifteen ", i);
    h.As(members[0], Send(1, std::string(1000, 'x'), name));
    h.As(members[0], PutCall{name, "v"}, absl::ZeroDuration(), Id128{1, 100u + i});
    h.As(members[0], QueuePushCall{name, "v"});
    for (const TestMember& member : members)
      h.As(member, Round(RoundKind::kAllGather, name, "value"));
    h.As(members[2], PublishIdsCall{name, {std::string(128, 'i')}});
    h.Make(PutCall{name, "v"}, Of(absl::StrCat("tenant", i), ""), absl::ZeroDuration());
    h.Make(CreateGroupCall{CoreHarness::Fixed(16384)}, Of("t", name));
  }
  h.ForgetReplies();
  const int64_t before = h.core().account().held();
  h.Restart();
  EXPECT_GT(h.core().account().held(), before / 2);
  EXPECT_LE(h.core().account().held(), before);
}

}  // namespace
}  // namespace cohort::coordinator
