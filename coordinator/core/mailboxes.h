// Objects between two ranks of one generation: in order per (source, destination, tag), each read
// exactly once. The order is that of the calls as they come, or that of their numbers: see
// mailboxes_order.cc.
//
// An object is in one of three places: in its box; handed out, under a receipt, until the receiver
// acknowledges (a repeat of the same Receive gets it again); or gone. Objects nobody reads expire,
// and the next reader of that box is told once that something was lost.
#ifndef COHORT_COORDINATOR_CORE_MAILBOXES_H_
#define COHORT_COORDINATOR_CORE_MAILBOXES_H_

#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "base/id128.h"
#include "coordinator/core/call.h"
#include "coordinator/core/group_context.h"
#include "coordinator/core/spent_operations.h"
#include "coordinator/core/step.h"
#include "coordinator/core/wait_table.h"

namespace cohort::coordinator {

// A send that was not accepted yet.
struct HeldSend {
  CallId id = 0;
  SendCall call;  // without its value
  Id128 operation;
  uint64_t fingerprint = 0;
  Payload payload;
  int64_t blob = 0;  // where the payload came from, or 0
  Instant deadline;
  Instant since;
};

class Mailboxes final : public WaitOwner {
 public:
  explicit Mailboxes(GroupContext& group) : group_(group), spent_(group.shard.tally) {}
  ~Mailboxes();
  Mailboxes(const Mailboxes&) = delete;
  Mailboxes& operator=(const Mailboxes&) = delete;

  // Puts the object; returns its sequence, or why not. The caller answers, unless `wait_consumed`
  // (then this does, once it was handed out). Delivers to a parked receiver at once.
  absl::StatusOr<int64_t> Send(Step& step, int sender, HeldSend& send);
  // A numbered send, which parks here unless its turn has come. An error was not answered yet.
  // Afterwards the caller takes the sends whose turn has come, one by one, and notes each that its
  // mailbox accepted. `place` names the mailbox.
  absl::Status HoldSend(Step& step, const Member& sender, HeldSend send);
  std::optional<HeldSend> TakeNextSend(Step& step, int sender, const SendCall& place);
  void NoteSent(Step& step, int sender, const SendCall& call);
  // A repeat of a Send that waits: parks again if the object is still there, else says what became
  // of it.
  void AwaitConsumed(Step& step, CallId id, absl::Duration wait, int64_t sequence);
  void Receive(Step& step, CallId id, const Member& receiver, const Id128& operation_id,
               absl::Duration wait, const ReceiveCall& call);
  // Frees what the receipt stands for. Unknown ones are fine.
  void Acknowledge(Step& step, int64_t receipt);

  // Nothing will come from `rank` any more; what it sent stays readable.
  void MemberGone(Step& step, int rank, const Cause& cause);
  void Break(Step& step, const Cause& cause);
  // Forgets everything, for the next generation. Precondition: nobody waits.
  void Clear(Step& step);
  void Expire(Step& step, absl::Duration older_than, int64_t& count, int64_t& bytes);
  void Restore(Instant now, const ObjectRecord& record);
  void Restore(const SendOrderRecord& record);

  void Describe(Instant now, std::vector<OpenWait>& waits) const;
  int64_t object_count() const { return static_cast<int64_t>(where_.size()); }
  int64_t unacknowledged_count() const { return static_cast<int64_t>(handed_out_.size()); }
  int64_t expired_count() const { return expired_count_; }

  int64_t waiter_count() const {
    return static_cast<int64_t>(receiving_.size() + sending_.size() + holding_.size());
  }

  void Forget(Step& step, CallId id) override;
  void TimeOut(Step& step, CallId id) override;
  void Explain(CallId id, ParkedCall& parked) const override;

 private:
  struct Object {
    int source = 0;
    int destination = 0;
    std::string tag;
    int64_t sequence = 0;
    Payload payload;
    Instant sent_at;
    absl::Duration expiration;
    CallId sender_call = 0;  // waits until it is consumed
    int64_t receipt = 0;
    Id128 operation;
    Charge charge;
  };
  struct Receiver {
    CallId id = 0;
    int rank = 0;
    std::optional<int> source;
    Id128 operation;
    Instant since;
  };
  // Expired unread, and to be told. Their rows stay so long, without the values.
  struct Lost {
    std::vector<int64_t> sequences;
    Id128 told_to;  // who may not have heard, and asks again under this operation
    Charge charge;
  };
  // All that goes to one (destination, tag).
  struct Box {
    std::map<int, std::map<int64_t, Object>> by_source;
    std::map<int, Lost> lost;
    std::list<Receiver> receivers;
    bool empty() const { return by_source.empty() && lost.empty() && receivers.empty(); }
  };
  using BoxKey = std::pair<int, std::string>;

  int64_t CostOfObject(const std::string& tag) const;
  void NoteLost(Box& box, int source, int64_t sequence);
  // The numbered sends of one (destination, tag, source).
  struct Ordered {
    int64_t last = 0;                  // accepted
    std::map<int64_t, HeldSend> held;  // by number, all larger
  };
  using OrderKey = std::tuple<int, std::string, int>;
  static OrderKey KeyOf(int sender, const SendCall& call) {
    return {call.destination, call.tag, sender};
  }

  absl::Status CheckDestination(int sender, const SendCall& call) const;
  // Takes a held send off every list.
  HeldSend Unhold(Step& step, std::map<OrderKey, Ordered>::iterator ordered, int64_t order);
  void AbortHeld(Step& step, std::optional<int> rank, const Cause& cause);
  void TimeOutHeld(Step& step, CallId id);
  void DescribeHeld(Instant now, std::vector<OpenWait>& waits) const;
  void ExplainHeld(CallId id, ParkedCall& parked) const;

  // The next object a receiver may take; nullptr: none.
  Object* Next(Box& box, const std::optional<int>& source);
  void HandOut(Step& step, CallId id, const Id128& operation, const BoxKey& key, Object& object);
  void AnswerWith(Step& step, CallId id, const Object& object);
  void AnswerConsumed(Step& step, Object& object, bool consumed);
  std::optional<Cause> WhyNothingComes(int receiver, const std::optional<int>& source) const;
  void Unpark(CallId id);
  void DropIfEmpty(const BoxKey& key);
  void Lose(Step& step, const Object& object);
  void NoteUnread(int64_t sequence);
  // Tells of what was lost on the way to this receiver, if there is something it may not know.
  bool TellLost(Step& step, CallId id, const Id128& operation, const BoxKey& key,
                const std::optional<int>& source);
  void ForgetLost(Step& step, Box& box, std::map<int, Lost>::iterator lost);
  void ScheduleExpiry();
  void RunExpiry(Step& step);
  void Write(Step& step, const Object& object);
  void EraseRow(Step& step, int64_t sequence);
  std::string Title(const Receiver& receiver, const std::string& tag) const;
  MissingReport Missing(Instant now, const Receiver& receiver) const;

  GroupContext& group_;
  std::map<BoxKey, Box> boxes_;
  absl::flat_hash_map<int64_t, std::pair<BoxKey, int>> where_;  // sequence -> box and source
  std::map<int64_t, Object> handed_out_;                        // by receipt
  absl::flat_hash_map<Id128, int64_t> handed_out_by_operation_;
  SpentOperations spent_;                             // receives
  std::set<int64_t> unread_;                          // the last objects that nobody was given
  absl::flat_hash_map<int, int64_t> unacknowledged_;  // per receiver
  // Calls: receivers by box, senders by sequence.
  absl::flat_hash_map<CallId, BoxKey> receiving_;
  absl::flat_hash_map<CallId, int64_t> sending_;
  std::map<OrderKey, Ordered> ordered_;
  absl::flat_hash_map<CallId, std::pair<OrderKey, int64_t>> holding_;
  // When objects expire: (instant, sequence), and (instant, -receipt) for those handed out.
  std::set<std::pair<Instant, int64_t>> expiries_;
  TimerId expiry_timer_ = 0;
  Instant expiry_at_ = absl::InfiniteFuture();
  int64_t expired_count_ = 0;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_MAILBOXES_H_
