// Who sits where in one group: seats by rank, members by name and by session, and the sessions that were fenced.
// Only facts; what they mean is group_*.cc's business.
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
  int rank = -1;  // -1: not seated yet (a candidate, or waiting for any seat)
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

  // What it does with tensors, as it said last, and when it was asked. `report_due`: its watch has not brought it the
  // question yet.
  std::optional<TensorReport> tensors;
  Instant tensors_at;
  Instant asked_at = absl::InfinitePast();
  bool reports = false;  // it can be asked
  bool report_due = false;
  CallId watch_call = 0;  // the last that was parked for it, perhaps answered since

  // The last thing it asked for, for people.
  const char* operation = "join";
  std::string operation_name;
  int64_t operation_number = 0;
  Instant operation_at;

  // The streams that stand for it, and what happens when the last one broke.
  std::vector<int64_t> streams;
  Instant attached_until;  // when the last of them ended
  TimerId disconnect_timer = 0;

  // What it costs, as of when its texts last changed.
  Charge charge;

  // Its parked Join, or 0.
  CallId join_call = 0;
  bool with_members = false;

  bool live() const {
    return state == MemberState::kJoining || state == MemberState::kActive ||
           state == MemberState::kSuspected || state == MemberState::kCandidate;
  }
  // It was asked, and has not said since.
  bool owes_report() const {
    return asked_at != absl::InfinitePast() && (!tensors.has_value() || tensors_at < asked_at);
  }
  bool confirmed() const { return state == MemberState::kActive || state == MemberState::kSuspected; }
};

// Memory grows with the members that are there, not with the number of seats.
class Roster {
 public:
  explicit Roster(Tally& tally) : tally_(tally), fenced_charge_(tally, MemoryKind::kMembers) {}

  // nullptr when there is none.
  Member* ByName(absl::string_view name);
  Member* BySession(const Id128& session);
  Member* BySeat(int rank) const {
    auto it = seats_.find(rank);
    return it == seats_.end() ? nullptr : it->second;
  }

  int seat_count() const { return seat_count_; }
  // Seats that fall away must be empty.
  void Resize(int seat_count) { seat_count_ = seat_count; }
  // The seats that are taken, in order of rank.
  const absl::btree_map<int, Member*>& seats() const { return seats_; }

  Member& Add(std::unique_ptr<Member> member);
  // Charges the member anew, after its host, addresses or labels changed.
  void Recharge(Member& member);
  // Forgets the member; its session answers `why` from now on.
  void Remove(Member& member, const Cause& why);
  // The session answers `why` from now on; the member stays in its seat (it left or was lost).
  void Fence(Member& member, const Cause& why);
  // A new life of the same name: the old session and incarnation are fenced.
  void Replace(Member& member, int64_t incarnation, const Id128& session, const Cause& why);
  void SetSession(Member& member, const Id128& session);
  // Precondition: the seat is empty.
  void Seat(Member& member, int rank);
  void Unseat(Member& member);

  // Why this session no longer counts; nullptr: it never existed here (or long ago).
  const Cause* WhyFenced(const Id128& session) const;
  // Whether a newer life of `name` was here since this one, so that a late repeat of its Join must not win.
  bool WasReplaced(absl::string_view name, int64_t incarnation) const;

  // By name. Members are stable in memory until removed.
  const std::map<std::string, std::unique_ptr<Member>, std::less<>>& members() const {
    return members_;
  }
  int CountLive() const;

  // `expected` minus `arrived`, with what is known about the first of those who are missing.
  MissingReport Missing(Instant now, const RankSet& expected, const RankSet& arrived) const;
  MemberInfo Info(Instant now, const Member& member) const;
  // Seats in order of rank, then the others by name.
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
  // Lives that were replaced or removed, in this order.
  std::deque<std::pair<std::string, int64_t>> past_lives_;
  Charge fenced_charge_;  // of both
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_ROSTER_H_
