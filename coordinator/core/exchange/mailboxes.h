// Objects between two ranks of one generation. Each object is read exactly once, in order per
// (source, destination, tag). The order is that of the calls, or that of their numbers
// (numbered_sends.h).
//
// An object is in its box, or handed out, or gone. A handed-out object has a receipt and stays
// until the receiver acknowledges it; a repeat of the same Receive gets it again. Objects that no
// rank reads expire, and the next reader of that box gets DATA_LOSS once.
#ifndef COHORT_COORDINATOR_CORE_EXCHANGE_MAILBOXES_H_
#define COHORT_COORDINATOR_CORE_EXCHANGE_MAILBOXES_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "base/id128.h"
#include "coordinator/core/exchange/numbered_sends.h"
#include "coordinator/core/idempotency/completed_operations.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/core/members/group_context.h"
#include "coordinator/core/runtime/step.h"
#include "coordinator/core/runtime/wait_table.h"

namespace cohort::coordinator {

class Mailboxes final : public WaitOwner {
 public:
  explicit Mailboxes(GroupContext& group)
      : group_(group), numbered_sends_(group), completed_(*group.tally) {}
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  // Puts the object into its box and returns its sequence number. The caller answers, unless
  // `wait_consumed`: then this class answers, once the object was handed out. Delivers to a parked
  // receiver at once.
  absl::StatusOr<int64_t> Send(Step& step, int sender, HeldSend& send);
  // Errors: INVALID_ARGUMENT (no such rank, or the sender), ABORTED (the destination is gone).
  absl::Status CheckDestination(int sender, const SendCall& call) const;
  // Holds sends with a number until they are next.
  NumberedSends& numbered_sends() { return numbered_sends_; }
  // Handles a repeat of a Send with `wait_consumed`: parks it if the object was not handed out yet,
  // else answers whether it was.
  void AwaitConsumed(Step& step, CallId id, absl::Duration wait, int64_t sequence);
  void Receive(Step& step, CallId id, const Member& receiver, const Id128& operation_id,
               absl::Duration wait, const ReceiveCall& call);
  // Frees the object that `receiver` got with the receipt. Unknown receipts are fine.
  void Acknowledge(Step& step, int receiver, int64_t receipt);
  // Puts the objects that these Receives of `receiver` have taken back at their old places, or
  // hands them to parked receivers. A copy of such a Receive that comes later takes nothing.
  // Unknown operations are fine.
  void Abandon(Step& step, int receiver, const std::vector<Id128>& operations);

  // `rank` will send no more objects; those that it has sent stay readable.
  void MemberGone(Step& step, int rank, const Cause& cause);
  void Break(Step& step, const Cause& cause);
  // Forgets everything, for the next generation. Precondition: no call is parked.
  void Clear(Step& step);
  void Expire(Step& step, absl::Duration older_than, int64_t& count, int64_t& bytes);
  void Restore(Instant now, const ObjectRecord& record);

  void Describe(Instant now, std::vector<OpenWait>& waits) const;
  int64_t object_count() const { return static_cast<int64_t>(where_.size()); }
  int64_t unacknowledged_count() const { return static_cast<int64_t>(handed_out_.size()); }
  int64_t expired_count() const { return expired_count_; }

  int64_t waiter_count() const {
    return static_cast<int64_t>(receiving_.size() + sending_.size()) +
           numbered_sends_.waiter_count();
  }

  void Forget(Step& step, CallId id) override;
  void TimeOut(Step& step, CallId id) override;
  void Explain(CallId id, ParkedCall& parked) const override;

 private:
  // The journal keeps the part that is an ObjectRecord.
  struct Object : ObjectRecord {
    Instant sent_at;
    CallId sender_call = 0;  // the Send that waits until the object is handed out; 0: no call waits
    Charge charge;
  };
  struct Receiver {
    CallId id = 0;
    int rank = 0;
    std::optional<int> source;
    Id128 operation;
    Instant since;
  };
  // Objects that expired unread, until a reader got the error. Their rows stay so long, without
  // values.
  struct Lost {
    std::vector<int64_t> sequences;
    Id128 reported_to;  // the operation that got the error; its repeat gets it again
    Charge charge;
  };
  // All objects for one (destination, tag), and its receivers.
  struct Box {
    std::map<int, std::map<int64_t, Object>> by_source;
    std::map<int, Lost> lost;
    std::list<Receiver> receivers;
    bool empty() const { return by_source.empty() && lost.empty() && receivers.empty(); }
  };
  using BoxKey = std::pair<int, std::string>;

  int64_t CostOfObject(const std::string& tag) const;
  void RememberLost(Box& box, int source, int64_t sequence);

  absl::Status CheckSource(int receiver, const std::optional<int>& source) const;
  // Whether the receiver has acknowledged enough to get another object.
  absl::Status CheckUnacknowledged(int receiver) const;
  // Answers a repeat of a Receive that was answered before; false: it was not answered.
  bool AnswerRepeat(Step& step, CallId id, int receiver, const Id128& operation,
                    const ReceiveCall& call);
  // The next object that a receiver may take; null: there is no object.
  Object* Next(Box& box, const std::optional<int>& source);
  // Takes the object out of its box.
  Object Take(Box& box, Object& boxed);
  // Frees an object that is handed out.
  void Free(Step& step, std::map<int64_t, Object>::iterator handed);
  // Takes the object of a receipt out of the objects that are handed out.
  Object TakeHandedOut(std::map<int64_t, Object>::iterator handed);
  // Receives that have no object: those that are parked end, and errors count as not reported.
  void AbandonUnanswered(Step& step, int receiver, const absl::flat_hash_set<Id128>& operations);
  // Hands the box's objects to its parked receivers.
  void Serve(Step& step, const BoxKey& key);
  // Puts the object into its box, where it waits for a receiver.
  void PutIntoBox(Step& step, const BoxKey& key, Object object);
  void HandOut(Step& step, CallId id, const Id128& operation, const BoxKey& key, Object& object);
  void AnswerWith(Step& step, CallId id, const Object& object);
  // End the Send that waits until the object is handed out, if one does.
  void AnswerConsumed(Step& step, Object& object, bool consumed);
  void AbortSender(Step& step, Object& object, const Cause& cause);
  std::optional<Cause> WhyNothingComes(int receiver, const std::optional<int>& source) const;
  void Unpark(CallId id);
  void DropIfEmpty(const BoxKey& key);
  void Lose(Step& step, Object& boxed);
  void RememberUnread(int64_t sequence);
  // Answers the receiver with DATA_LOSS if objects to it were lost and it may not know that yet.
  bool ReportLost(Step& step, CallId id, const Id128& operation, const BoxKey& key,
                  const std::optional<int>& source);
  void ForgetLost(Step& step, Box& box, std::map<int, Lost>::iterator lost);
  void ScheduleExpiry();
  void RunExpiry(Step& step);
  void Write(Step& step, const Object& object);
  void EraseRow(Step& step, int64_t sequence);
  std::string Title(const Receiver& receiver, const std::string& tag) const;
  MissingReport Missing(Instant now, const Receiver& receiver) const;

  GroupContext& group_;
  NumberedSends numbered_sends_;
  std::map<BoxKey, Box> boxes_;
  absl::flat_hash_map<int64_t, std::pair<BoxKey, int>> where_;  // sequence -> box and source
  std::map<int64_t, Object> handed_out_;                        // by receipt
  absl::flat_hash_map<Id128, int64_t> handed_out_by_operation_;
  CompletedOperations completed_;                     // of receives
  std::set<int64_t> unread_;                          // the last objects that were dropped unread
  absl::flat_hash_map<int, int64_t> unacknowledged_;  // per receiver
  // Parked calls: receivers by box, senders by sequence.
  absl::flat_hash_map<CallId, BoxKey> receiving_;
  absl::flat_hash_map<CallId, int64_t> sending_;
  // When objects expire: (instant, sequence), and (instant, -receipt) for those handed out.
  std::set<std::pair<Instant, int64_t>> expiries_;
  TimerId expiry_timer_ = 0;
  Instant expiry_at_ = absl::InfiniteFuture();
  int64_t expired_count_ = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_EXCHANGE_MAILBOXES_H_
