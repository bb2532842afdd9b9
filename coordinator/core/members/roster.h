// The members of one group, by rank, by name and by session, and its fenced sessions. It
// keeps facts; group_*.cc acts on them.
#ifndef COHORT_COORDINATOR_CORE_MEMBERS_ROSTER_H_
#define COHORT_COORDINATOR_CORE_MEMBERS_ROSTER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/flat_hash_map.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/id128.h"
#include "base/rank_set.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/core/runtime/timers.h"

namespace cohort::coordinator {

// The journal keeps the part that is a MemberRecord.
struct Member : MemberRecord {
  // The last incarnation whose hash was asked for, and the hash.
  mutable int64_t hashed_incarnation = 0;
  mutable int64_t incarnation_hash = 0;
  Instant joined_at;
  Instant last_heard;
  int64_t progress = 0;
  std::string progress_operation;
  Instant progress_at;

  // The member's last report of its operations on tensors, and when it was asked for one.
  std::optional<TensorReport> tensors;
  Instant tensors_at;
  Instant asked_at = absl::InfinitePast();
  bool reports = false;     // its attached watch takes requests for reports
  bool report_due = false;  // the watch has not delivered the request yet
  CallId watch_call = 0;    // the last watch call that was parked; it may have been answered since

  // The last operation that it called, for people.
  const char* operation = "join";
  std::string operation_name;
  int64_t operation_number = 0;
  Instant operation_at;

  // The streams that stand for it, and the timer that runs after the last one broke.
  std::vector<int64_t> streams;
  Instant attached_until;  // when the last of them ended
  TimerId disconnect_timer = 0;

  // Its memory, updated when its texts change.
  Charge charge;

  // Its parked Join; 0: it has no parked Join.
  CallId join_call = 0;
  bool with_members = false;

  bool live() const {
    return state == MemberState::kJoining || state == MemberState::kActive ||
           state == MemberState::kSuspected || state == MemberState::kCandidate;
  }
  // Whether it was asked for a report and has not reported since.
  bool owes_report() const {
    return asked_at != absl::InfinitePast() && (!tensors.has_value() || tensors_at < asked_at);
  }
  // It begins an operation; people see its last one.
  void Begin(const char* what, const std::string& name_of_it, int64_t number, Instant now) {
    operation = what;
    operation_name = name_of_it;
    operation_number = number;
    operation_at = now;
  }
  bool confirmed() const { return state == MemberState::kActive || state == MemberState::kSuspected; }
};

// Memory grows with the number of members, not with the number of rank slots.
class Roster {
 public:
  explicit Roster(Tally& tally) : tally_(tally), fenced_charge_(tally, MemoryKind::kMembers) {}
  ~Roster() {
    tally_.account()->Count(QuotaKind::kMembers, -static_cast<int64_t>(members_.size()));
  }
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  // Null: there is no such member.
  Member* ByName(absl::string_view name);
  Member* BySession(const Id128& session);
  Member* ByRank(int rank) const {
    auto it = by_rank_.find(rank);
    return it == by_rank_.end() ? nullptr : it->second;
  }

  int slot_count() const { return slot_count_; }
  // Precondition: rank slots at and above `slot_count` are empty.
  void Resize(int slot_count) { slot_count_ = slot_count; }
  // The members that have a rank, in order of rank.
  const absl::btree_map<int, Member*>& by_rank() const { return by_rank_; }

  Member& Add(std::unique_ptr<Member> member);
  // Updates the member's charge, after its host, addresses or labels changed.
  void Recharge(Member& member);
  // Forgets the member. Calls of its session are answered with `why` from now on.
  void Remove(Member& member, const Cause& why);
  // Calls of the session are answered with `why` from now on. The member, which left or was lost,
  // keeps its rank.
  void Fence(Member& member, const Cause& why);
  // Begins a new incarnation of the member; fences the old session and incarnation.
  void Replace(Member& member, int64_t incarnation, const Id128& session, const Cause& why);
  void SetSession(Member& member, const Id128& session);
  // Precondition: no other member has this rank.
  void AssignRank(Member& member, int rank);
  void ReleaseRank(Member& member);

  // Why this session was fenced; null: it never was, or so long ago that it is forgotten.
  const Cause* WhyFenced(const Id128& session) const;
  // Whether a newer incarnation of `name` has joined since this one: a late repeat of this one's
  // Join is then refused.
  bool WasReplaced(absl::string_view name, int64_t incarnation) const;

  // By name. Members are stable in memory until removed.
  const std::map<std::string, std::unique_ptr<Member>, std::less<>>& members() const {
    return members_;
  }
  int CountLive() const;
  // The loss of all members, one after the other, costs no more than a few looks at each.
  bool AnyLive() const;

  // The ranks of `expected` that are not in `arrived`, with details of the first kDetails.
  MissingReport Missing(Instant now, const RankSet& expected, const RankSet& arrived) const;
  MemberInfo Info(Instant now, const Member& member) const;
  // Members with a rank, by rank, then the others by name.
  std::vector<MemberInfo> Infos(Instant now) const;

 private:
  static constexpr size_t kFencedKept = 4096;

  void FenceSession(const Id128& session, const Cause& why);
  void RememberIncarnation(const Member& member);

  std::map<std::string, std::unique_ptr<Member>, std::less<>> members_;
  mutable std::string last_live_;  // the member that AnyLive has found
  Tally& tally_;
  absl::btree_map<int, Member*> by_rank_;
  int slot_count_ = 0;
  absl::flat_hash_map<Id128, Member*> sessions_;
  absl::flat_hash_map<Id128, Cause> fenced_;
  std::deque<Id128> fenced_order_;
  // Incarnations that were replaced or removed, oldest first.
  std::deque<std::pair<std::string, int64_t>> past_incarnations_;
  Charge fenced_charge_;  // of fenced sessions and past incarnations
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_MEMBERS_ROSTER_H_
