#include "coordinator/service/torchft/quorum_decision.h"

#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator::torchft {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Instant kNow = absl::FromUnixSeconds(1000);

struct Row {
  std::string what;
  // By replica: the seconds since its last heartbeat, and since it asked.
  std::map<std::string, double> heard;
  std::map<std::string, double> asked;
  std::vector<std::string> previous;
  std::string members;  // empty: no quorum yet
  std::string reason;   // a part of it
  bool needs_new_id = true;
  double valid_for = -1;  // seconds; -1: for ever
  std::vector<std::string> shrink_only = {};
  std::vector<std::string> failed = {};
};

std::vector<Row> Rows() {
  return {
      {"no replica", {}, {}, {}, "", "0 replicas of at least 2 (min_replicas) asked"},
      {"one of two", {{"a", 0}}, {{"a", 0}}, {}, "", "no other replica is known", true, 5},
      {"both", {{"a", 0}, {"b", 1}}, {{"a", 0}, {"b", 0}}, {}, "a b"},
      {"the candidate is silent",
       {{"a", 0}, {"b", 6}},
       {{"a", 0}, {"b", 6}},
       {},
       "",
       "missing: b (it asked, but its last heartbeat came 6.0s ago)",
       true,
       5},
      {"a heartbeat counts until its timeout",
       {{"a", 0}, {"b", 4.999}},
       {{"a", 0}, {"b", 0}},
       {},
       "a b"},
      {"a replica that has not asked is waited for",
       {{"a", 1}, {"b", 2}, {"c", 3}},
       {{"a", 8}, {"b", 4}},
       {},
       "",
       "2 of 3 replicas with heartbeats asked for a quorum, which waits 10s (join_timeout) for the "
       "others; missing: c (its last heartbeat came 3.0s ago)",
       true,
       2},
      {"and no longer than join_timeout after the first",
       {{"a", 1}, {"b", 2}, {"c", 3}},
       {{"a", 10}, {"b", 4}},
       {},
       "a b"},
      {"half is too few, however long it waits",
       {{"a", 1}, {"b", 2}, {"c", 3}, {"d", 3}},
       {{"a", 60}, {"b", 60}},
       {},
       "",
       "2 of 4 replicas with heartbeats asked for a quorum, which needs more than half of them",
       true,
       2},
      {"all previous members: at once, without the newcomer",
       {{"a", 1}, {"b", 2}, {"new", 3}},
       {{"a", 0}, {"b", 0}},
       {"a", "b"},
       "a b",
       "",
       false},
      {"all previous members and the newcomer that asked",
       {{"a", 1}, {"b", 2}, {"new", 3}},
       {{"a", 0}, {"b", 0}, {"new", 3}},
       {"a", "b"},
       "a b new"},
      {"a previous member alone needs no other",
       {{"a", 1}, {"b", 2}},
       {{"a", 0}},
       {"a"},
       "a",
       "",
       false},
      {"a previous member is dead",
       {{"a", 1}, {"b", 2}, {"c", 7}},
       {{"a", 0}, {"b", 0}},
       {"a", "b", "c"},
       "a b"},
      {"a dead previous member is named",
       {{"a", 1}, {"c", 7}},
       {{"a", 0}},
       {"a", "c"},
       "",
       "1 replica of at least 2 (min_replicas) asked for a quorum; missing: c (its last heartbeat "
       "came 7.0s ago)",
       true,
       4},
      {"shrink_only keeps a newcomer out",
       {{"a", 1}, {"b", 2}, {"new", 3}},
       {{"a", 0}, {"b", 0}, {"new", 3}},
       {"a", "b"},
       "a b",
       "",
       false,
       -1,
       {"b"}},
      {"shrink_only after a loss",
       {{"a", 1}, {"b", 9}, {"new", 3}},
       {{"a", 0}, {"new", 3}},
       {"a", "b"},
       "a",
       "",
       true,
       -1,
       {"a"}},
      {"shrink_only without a previous quorum admits all",
       {{"a", 1}, {"b", 1}},
       {{"a", 0}, {"b", 0}},
       {},
       "a b",
       "",
       true,
       -1,
       {"a"}},
      {"shrink_only of newcomers alone",
       {{"new", 1}, {"newer", 1}},
       {{"new", 0}, {"newer", 0}},
       {"a", "b"},
       "",
       "shrink_only admits previous members alone",
       true,
       4,
       {"new"}},
      {"a member could not commit",
       {{"a", 1}, {"b", 1}},
       {{"a", 0}, {"b", 0}},
       {"a", "b"},
       "a b",
       "",
       true,
       -1,
       {},
       {"b"}},
  };
}

TEST(QuorumDecisionTest, Table) {
  QuorumOptions options;
  options.min_replicas = 2;
  options.join_timeout = absl::Seconds(10);
  options.heartbeat_timeout = absl::Seconds(5);
  for (const Row& row : Rows()) {
    SCOPED_TRACE(row.what);
    QuorumState state;
    for (const auto& [replica, age] : row.heard) {
      state.heartbeats[replica] = kNow - absl::Seconds(age);
    }
    for (const auto& [replica, age] : row.asked) {
      state.candidates[replica].since = kNow - absl::Seconds(age);
    }
    for (const std::string& id : row.shrink_only) state.candidates[id].shrink_only = true;
    for (const std::string& id : row.failed) state.candidates[id].commit_failures = 1;
    state.previous = row.previous;
    const QuorumDecision decision = DecideQuorum(kNow, state, options);
    EXPECT_EQ(absl::StrJoin(decision.members, " "), row.members);
    EXPECT_THAT(decision.reason, HasSubstr(row.reason));
    EXPECT_EQ(decision.reason.empty(), !row.members.empty());
    if (!row.members.empty()) {
      EXPECT_EQ(decision.needs_new_id, row.needs_new_id);
      continue;
    }
    EXPECT_EQ(decision.valid_until, row.valid_for < 0 ? absl::InfiniteFuture()
                                                      : kNow + absl::Seconds(row.valid_for));
  }
}

TEST(QuorumDecisionTest, AtTheEndOfItsValidityItDiffers) {
  QuorumState state;
  state.heartbeats = {{"a", kNow}, {"b", kNow}, {"silent", kNow - absl::Seconds(4)}};
  state.candidates = {{"a", {kNow}}, {"b", {kNow}}};
  const QuorumDecision decision = DecideQuorum(kNow, state, QuorumOptions());
  EXPECT_THAT(decision.members, ElementsAre());
  EXPECT_EQ(decision.valid_until, kNow + absl::Seconds(1));
  EXPECT_THAT(DecideQuorum(decision.valid_until, state, QuorumOptions()).members,
              ElementsAre("a", "b"));
}

TEST(QuorumDecisionTest, ManyMissingReplicasAreCounted) {
  QuorumState state;
  for (int i = 10; i < 30; ++i) state.heartbeats["replica" + std::to_string(i)] = kNow;
  state.candidates["replica10"].since = kNow;
  const std::string reason = DecideQuorum(kNow, state, QuorumOptions()).reason;
  EXPECT_THAT(reason, HasSubstr("replica18 (its last heartbeat came 0.0s ago) and 11 more"));
}

TEST(QuorumDecisionTest, NamesArePrintable) {
  QuorumState state;
  state.heartbeats = {{"a", kNow}, {"b\n", kNow}};
  state.candidates = {{"a", {kNow}}};
  EXPECT_THAT(DecideQuorum(kNow, state, QuorumOptions()).reason, HasSubstr("b\\x0a"));
}

TEST(QuorumDecisionTest, AfterARestartTheOthersMayShowThatTheyAreAlive) {
  QuorumOptions options;
  QuorumState state;
  state.heartbeats["a"] = state.candidates["a"].since = kNow;
  state.not_before = kNow + absl::Seconds(5);
  const QuorumDecision early = DecideQuorum(kNow, state, options);
  EXPECT_THAT(early.members, testing::IsEmpty());
  EXPECT_THAT(early.reason, HasSubstr("the coordinator has started again, and waits 5s"));
  EXPECT_EQ(early.valid_until, state.not_before);
  state.heartbeats["a"] = state.not_before;
  EXPECT_THAT(DecideQuorum(state.not_before, state, options).members, ElementsAre("a"));
}

}  // namespace
}  // namespace cohort::coordinator::torchft
