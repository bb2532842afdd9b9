// The members of one group: seats by rank, members by name and by session, and fenced sessions. It
// keeps facts; group_*.cc acts on them.
#ifndef COHORT_COORDINATOR_CORE_ROSTER_H_
#define COHORT_COORDINATOR_CORE_ROSTER_H_

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
#include "coordinator/core/account.h"
#include "coordinator/core/timers.h"
#include "coordinator/core/types.h"

namespace cohort::coordinator {

struct Member {
  std::string name;
  int64_t incarnation = 0;
  int rank = -1;  // -1: no seat yet (a candidate, or a member that waits for any seat)
  MemberState state = MemberState::kJoining;
  Id128 session;
  std::string host;
  std::vector<std::string> addresses;
  std::map<std::string, std::string> labels;

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
  bool confirmed() const { return state == MemberState::kActive || state == MemberState::kSuspected; }
};

// Memory grows with the number of members, not with the number of seats.
class Roster {
 public:
  explicit Roster(Tally& tally) : tally_(tally), fenced_charge_(tally, MemoryKind::kMembers) {}

  // Null: there is no such member.
  Member* ByName(absl::string_view name);
  Member* BySession(const Id128& session);
  Member* BySeat(int rank) const {
    auto it = seats_.find(rank);
    return it == seats_.end() ? nullptr : it->second;
  }

  int seat_count() const { return seat_count_; }
  // Precondition: seats at and above `seat_count` are empty.
  void Resize(int seat_count) { seat_count_ = seat_count; }
  // The seats that are taken, in order of rank.
  const absl::btree_map<int, Member*>& seats() const { return seats_; }

  Member& Add(std::unique_ptr<Member> member);
  // Updates the member's charge, after its host, addresses or labels changed.
  void Recharge(Member& member);
  // Forgets the member. Calls of its session are answered with `why` from now on.
  void Remove(Member& member, const Cause& why);
  // Calls of the session are answered with `why` from now on. The member, which left or was lost,
  // keeps its seat.
  void Fence(Member& member, const Cause& why);
  // Begins a new incarnation of the member; fences the old session and incarnation.
  void Replace(Member& member, int64_t incarnation, const Id128& session, const Cause& why);
  void SetSession(Member& member, const Id128& session);
  // Precondition: the seat is empty.
  void Seat(Member& member, int rank);
  void Unseat(Member& member);

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

  // The ranks of `expected` that are not in `arrived`, with details of the first kDetails.
  MissingReport Missing(Instant now, const RankSet& expected, const RankSet& arrived) const;
  MemberInfo Info(Instant now, const Member& member) const;
  // Seated members by rank, then the others by name.
  std::vector<MemberInfo> Infos(Instant now) const;

 private:
  static constexpr size_t kFencedKept = 4096;

  void FenceSession(const Id128& session, const Cause& why);
  void NotePastLife(const Member& member);

  std::map<std::string, std::unique_ptr<Member>, std::less<>> members_;
  Tally& tally_;
  absl::btree_map<int, Member*> seats_;
  int seat_count_ = 0;
  absl::flat_hash_map<Id128, Member*> sessions_;
  absl::flat_hash_map<Id128, Cause> fenced_;
  std::deque<Id128> fenced_order_;
  // Incarnations that were replaced or removed, oldest first.
  std::deque<std::pair<std::string, int64_t>> past_lives_;
  Charge fenced_charge_;  // of fenced sessions and past incarnations
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_ROSTER_H_
