// Barriers, gathers, broadcasts and votes of one generation: numbered rounds under a name.
//
// The rounds of one name are one sequence for all members, whatever their kinds. If a member calls
// an all-gather where the others call a barrier, the round ends at once in a mismatch. Two
// families:
//
//   symmetric (barrier, all_gather, gather, vote, agree_alive): all members wait until all have
//     arrived. A cancelled call takes its arrival back. When the first `wait` ends, the number ends
//     for all.
//   rooted (broadcast, scatter): readers wait only for the root; the root waits only with
//     wait_consumed. When a reader's `wait` ends, only that reader times out; the number stays open
//     until all have read.
//
// After a number has ended, these stay:
//   - the watermark of the name, and how the last number ended;
//   - values that a member may ask for again, until it acknowledges their receipt, it arrives at a
//     later number, or they expire;
//   - the fact that it was released, until all its members have been in a later number that ended.
//
// Each member counts its own rounds under a name. A member that calls a number that has ended
// without it gets the end of that number once, and goes on with the number of the others. Only
// ranks that are behind have an entry.
#ifndef COHORT_COORDINATOR_CORE_EXCHANGE_ROUNDS_H_
#define COHORT_COORDINATOR_CORE_EXCHANGE_ROUNDS_H_

#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/members/group_context.h"
#include "coordinator/core/runtime/step.h"
#include "coordinator/core/runtime/wait_table.h"

namespace cohort::coordinator {

class Rounds final : public WaitOwner {
 public:
  explicit Rounds(GroupContext& group) : group_(group) {}
  ~Rounds();
  Rounds(const Rounds&) = delete;
  Rounds& operator=(const Rounds&) = delete;

  // `values` are the resolved `call.values`. Precondition: the member has a rank in this
  // generation.
  void Enter(Step& step, CallId id, Member& member, absl::Duration wait, const EnterRoundCall& call,
             std::vector<Payload> values);
  // Ends the symmetric round `number` of `name` (0: the lowest open one). Returns its number; 0: no
  // such round is open.
  int64_t Cancel(Step& step, const std::string& name, int64_t number, const std::string& reason);
  // The member has the values of this receipt. Unknown receipts are fine.
  void Acknowledge(Step& step, int rank, int64_t receipt);

  // This member will not arrive any more: rounds that need it end ABORTED; agreements go on without
  // it.
  void MemberGone(Step& step, int rank, const Cause& cause);
  // The generation ended. With `keep_agreements`, AgreeAlive rounds go on without the gone members.
  void Break(Step& step, const Cause& cause, bool keep_agreements);
  // Forgets everything, for the next generation. Precondition: no call is parked.
  void Clear(Step& step);
  // Frees values older than `older_than`.
  void Expire(Step& step, absl::Duration older_than, int64_t& count, int64_t& bytes);

  void Restore(Instant now, const RoundNameRecord& record);
  void Restore(Instant now, const RoundEndRecord& record);

  void Describe(Instant now, std::vector<OpenWait>& waits) const;
  int64_t name_count() const { return static_cast<int64_t>(names_.size()); }
  int64_t open_count() const;
  int64_t released_barriers() const { return released_barriers_; }

  int64_t waiter_count() const { return static_cast<int64_t>(parked_.size()); }
  // The ranks whose calls are parked in some round.
  RankSet WaitingRanks() const;

  void Forget(Step& step, CallId id) override;
  void TimeOut(Step& step, CallId id) override;
  void Explain(CallId id, ParkedCall& parked) const override;

 private:
  struct Waiter {
    CallId id = 0;
    int rank = 0;
  };
  struct Round {
    RoundKind kind = RoundKind::kBarrier;
    int64_t number = 0;
    RankSet participants;
    std::string digest;
    int opener = 0;  // the rank that arrived first; its call defines the round
    int root = -1;
    VoteOp op = VoteOp::kAnd;

    RankSet arrived;  // symmetric: ranks that wait; rooted: root, readers that wait or have read
    RankSet read;     // rooted: readers that were served
    std::vector<Waiter> waiters;
    int first_rank = -1;
    int last_rank = -1;
    Instant first_at;
    Instant last_at;
    Instant deadline;  // the earliest of the waiters', for people

    // One per participant (symmetric, scatter) or one (broadcast); empty: no values.
    std::vector<Payload> values;
    std::vector<int64_t> votes;
    bool has_root = false;

    bool ended = false;
    bool recorded = false;  // a RoundEndRecord of it is in the journal
    RankSet unacknowledged;
    std::shared_ptr<const RoundEnd> end;
    int64_t receipt = 0;
    TimerId expiry = 0;
    Instant valued_at;
    Charge charge;
  };
  struct Name {
    std::string name;
    // All numbers up to this one have ended, or will not be used.
    int64_t ended_through = 0;
    RoundKind last_kind = RoundKind::kBarrier;
    RoundOutcome last_outcome = RoundOutcome::kReleased;
    std::string last_reason;
    int64_t last_number = 0;
    std::weak_ptr<const RoundEnd> last_end;  // in kept_ends_; unless it was released
    // The number of the last released barrier of all members. A member that repeats it was in it
    // and gets RELEASED, even after later rounds. Rounds of other kinds stay in `rounds` for
    // repeats.
    int64_t last_released = 0;
    // Open rounds, and ended ones that a member may ask for again.
    std::map<int64_t, Round> rounds;
    // Ranks that do not know yet how a number at or below `ended_through` ended, by the first
    // such number. A rank has at most one entry; a rank without an entry is not behind.
    struct Late {
      RankSet ranks;
      std::weak_ptr<const RoundEnd> end;  // how that number ended; in kept_ends_
      bool released = false;              // it ended so, and its values are gone
    };
    std::map<int64_t, Late> late;
    std::list<Name*>::iterator use;  // in use_order_
    Charge charge;
  };

  static constexpr size_t kEndsKept = 16;

  static bool Rooted(RoundKind kind) {
    return kind == RoundKind::kBroadcast || kind == RoundKind::kScatter;
  }

  // The memory of a round that has just been opened, without values.
  int64_t CostOfRound(const Round& round) const;
  Name* FindOrAddName(Step& step, const std::string& name);
  void DropName(Step& step, Name& name);
  // --- rounds_numbers.cc: the next number of each rank
  // The first number whose end this member does not know.
  static int64_t FirstUnreported(const Name& name, int rank);
  // The first number that this member took no part in and whose end it does not know.
  static int64_t NextFor(const Name& name, int rank);
  // The watermark of the name has moved up from `from`: the ranks that were not there are behind.
  void MarkLate(Name& name, int64_t from);
  static void AddLate(Name& name, int64_t number, const RankSet& ranks);
  // The member knows, or gets now, how the numbers before `next` ended.
  void CatchUp(Step& step, Name& name, int rank, int64_t next);
  // The number of a member's next call after this end. Members that a mismatch ends stay in step,
  // as long as the ends are kept; others go on at the watermark.
  int64_t NextAfter(const Name& name, const RoundEnd& end) const;
  // Null: not kept, or released.
  std::shared_ptr<const RoundEnd> KeptEnd(const Name& name, int64_t number) const;
  void KeepEnd(const std::shared_ptr<const RoundEnd>& end);
  // The end that a member gets for a number that ended unreleased and is not in `rounds`.
  std::shared_ptr<const RoundEnd> EndOf(const Name& name, int64_t number, int rank) const;
  // Answers a call on a number that has ended.
  void AnswerEnded(Step& step, CallId id, Name& name, int64_t number, int rank);
  static std::string LateReason(const RoundEnd& end, int rank);
  static void WriteLate(const Name& name, RoundNameRecord& record);
  void RestoreLate(Name& name, const RoundNameRecord& record);

  // --- rounds_enter_release.cc
  absl::Status CheckParticipants(const EnterRoundCall& call, int rank,
                                 const RankSet& participants) const;
  absl::Status CheckRoot(const EnterRoundCall& call, int rank, const RankSet& participants,
                         size_t value_count) const;
  // A member has a wrong root, or as a root a wrong number of values. The round ends for all of
  // them, which wait for it.
  void EnterWrong(Step& step, CallId id, const Member& member, const EnterRoundCall& call,
                  const RankSet& participants, Name& name, int64_t number, absl::string_view why);
  // The open round that the call enters, opened if it is new. Null: the call was answered, because
  // the number has ended or cannot be opened.
  Round* FindOrOpen(Step& step, CallId id, const EnterRoundCall& call, int rank,
                    const RankSet& participants, Name& name, int64_t number);
  void Open(Step& step, const EnterRoundCall& call, int rank, RankSet participants, Round& round);
  // Empty: the call fits the round. Else a text that names both sides.
  std::string Mismatch(const Round& round, const EnterRoundCall& call, int rank,
                       const RankSet& participants) const;
  void EnterSymmetric(Step& step, CallId id, int rank, absl::Duration wait,
                      const EnterRoundCall& call, std::vector<Payload> values, Name& name,
                      Round& round);
  void EnterRooted(Step& step, CallId id, int rank, absl::Duration wait, const EnterRoundCall& call,
                   std::vector<Payload> values, Name& name, Round& round);
  void Serve(Step& step, Name& name, Round& round, CallId id, int rank);
  void Park(Step& step, Name& name, Round& round, CallId id, int rank, absl::Duration wait);
  void Unpark(CallId id);
  // Takes the parked call of this rank out of the round; 0: it has none.
  CallId UnparkRank(Round& round, int rank);
  // The rank repeats its call. The caller of its parked call is gone, or does not wait any more.
  void EndOlderCall(Step& step, Round& round, int rank);
  // This rank waits no longer: its progress timeout starts now.
  void EndWait(Step& step, int rank);
  void MaybeRelease(Step& step, Name& name, Round& round);
  bool Complete(const Round& round) const;
  // Ends a round for all members that wait in it.
  void End(Step& step, Name& name, Round& round, RoundOutcome outcome, std::string reason);
  void AbortRound(Step& step, Name& name, Round& round, const Cause& cause);
  // Answers the call of this rank, if it waits.
  void AbortWaiter(Step& step, const Name& name, Round& round, int rank, const Cause& cause);
  void EndRootedIfRead(Step& step, Name& name, Round& round);
  void Drop(Step& step, Name& name, int64_t number);
  void Advance(Step& step, Name& name, const Round& round);
  void KeepValues(Step& step, Name& name, Round& round);
  // Keeps the values until they are acknowledged or expire.
  void ExpireLater(Instant now, Name& name, Round& round);
  void ValuesExpired(Step& step, const std::string& name, int64_t number);
  // All members that get values of this ended round have acknowledged them.
  void AllAcknowledged(Step& step, Name& name, Round& round);
  void DropEndedBefore(Step& step, Name& name, int64_t number);
  // Whether all participants that can still act have been in it.
  bool AllWereIn(const Round& round) const;
  std::string Title(const Name& name, const Round& round) const;
  MissingReport Missing(Instant now, const Round& round) const;
  std::shared_ptr<RoundEnd> MakeEnd(Instant now, const Name& name, const Round& round,
                                    RoundOutcome outcome, std::string reason) const;
  void WriteName(Step& step, const Name& name);
  void WriteRound(Step& step, const Name& name, Round& round);

  GroupContext& group_;
  std::map<std::string, std::unique_ptr<Name>, std::less<>> names_;
  std::list<Name*> use_order_;  // least recently used first
  struct Position {
    Name* name = nullptr;
    int64_t number = 0;
  };
  absl::flat_hash_map<CallId, Position> parked_;
  absl::flat_hash_map<int64_t, Position> receipts_;
  // The ends of the last kEndsKept numbers, of all names, that were not released.
  std::deque<std::shared_ptr<const RoundEnd>> kept_ends_;
  int64_t released_barriers_ = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_EXCHANGE_ROUNDS_H_
