// Keys, counters and queues of one namespace.
#ifndef COHORT_COORDINATOR_CORE_STORE_STORE_H_
#define COHORT_COORDINATOR_CORE_STORE_STORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "absl/container/btree_map.h"
#include "absl/container/btree_set.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/id128.h"
#include "coordinator/core/idempotency/completed_operations.h"
#include "coordinator/core/idempotency/first_answers.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/interface/types.h"
#include "coordinator/core/runtime/event_log.h"
#include "coordinator/core/runtime/shard.h"
#include "coordinator/core/runtime/step.h"
#include "coordinator/core/runtime/timers.h"
#include "coordinator/core/runtime/wait_table.h"

namespace cohort::coordinator {

// proto/cohort/v1/store.proto is the contract of the calls. Confined to one thread; a call is one
// step, so all calls on a namespace are linearizable in the order in which they are handled.
//
//   S1  Every change of a key takes a new number from the group's counter as its revision and is
//       one event. The revision of the namespace is that of its last event; queues take numbers
//       but do not change it.
//   S2  Keys and items that are due at `now` are removed before a call at that instant looks:
//       expiry is exact, however late the timers run.
//   S3  A queue with a waiting consumer has no waiting item.
//   S4  A parked watch has seen every event with its prefix.
//   S5  A parked get is registered under one key or queue that does not satisfy it.
class Store final : public WaitOwner {
 public:
  // The age and the bytes of values up to which events are kept for watches. They count as bytes
  // held, but are dropped before a put is refused for want of memory.
  static constexpr absl::Duration kHistoryAge = absl::Minutes(1);
  static constexpr int64_t kHistoryBytes = 4 << 20;
  // The most changes and bytes of values in one answer of a watch. A larger change comes alone.
  static constexpr int kWatchBatch = 256;
  static constexpr int64_t kWatchBatchBytes = 64 << 10;

  // `last_number` is the group's counter: the last number that it gave out, at first
  // shard.FirstNumber(). All references outlive the store. `tally` is that of the tenant, and
  // `ledger` counts the bytes of this namespace.
  Store(Shard& shard, GroupKey key, std::shared_ptr<Tally> tally, FirstAnswers& operations,
        std::shared_ptr<ByteLedger> ledger, int64_t* last_number);
  // Drops its parked calls without answers; FailAll answers them.
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // The owner has checked the caller's session and acknowledged its receipts. With a `wait` of
  // zero, no call is parked.
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait, PutCall&& call);
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait, GetCall&& call);
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait, RangeCall&& call);
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait, DeleteCall&& call);
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait, AddCall&& call);
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait, AppendCall&& call);
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait,
              QueuePushCall&& call);
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait,
              QueuePopCall&& call);
  void Handle(Step& step, CallId id, const Caller& caller, absl::Duration wait,
              WatchKeysCall&& call);

  // Frees the popped items that the caller acknowledges, and puts back those of the pops that it
  // has abandoned: each at its old place, or to a waiting consumer. An abandoned pop that comes
  // later takes nothing. Unknown receipts and operations are fine.
  void Settle(Step& step, const Caller& caller);

  // Deletes the keys bound to the session. Its parked calls stay until FailSession. Items handed to
  // it stay until they are acknowledged or expire.
  void EndSession(Step& step, const Id128& session);

  // Answer the parked calls of one session, or all parked calls, with an error.
  void FailSession(Step& step, const Id128& session, const absl::Status& status,
                   std::shared_ptr<const ErrorContext> context = nullptr);
  void FailAll(Step& step, const absl::Status& status,
               std::shared_ptr<const ErrorContext> context = nullptr);

  // Take the rows of an earlier boot, in any order, before any call. Expiries begin again at `now`.
  void Restore(Instant now, const KeyRecord& record);
  void Restore(Instant now, const QueueItemRecord& record);

  // Sets the expiration of queue items whose push has none; default 3600 s.
  void set_data_expiration(absl::Duration expiration) { data_expiration_ = expiration; }

  // Whether it has no keys, no items, no event that a watch could still ask for and no parked call.
  bool idle() const;
  // Whether it is idle and knows of no pop whose late copy it would have to answer with "not
  // found".
  bool unused() const { return idle() && completed_pops_.empty(); }
  int64_t key_count() const { return static_cast<int64_t>(keys_.size()); }
  // Items of queues, those handed out and not acknowledged included.
  int64_t queue_item_count() const { return queue_item_count_; }
  int64_t unacknowledged_count() const { return static_cast<int64_t>(handed_out_.size()); }
  // The number of calls that wait for a key or an item; watches are not counted.
  int64_t waiter_count() const { return static_cast<int64_t>(parked_.size()) - watch_count_; }
  int64_t watch_count() const { return watch_count_; }
  bool IsWatch(CallId id) const;
  int64_t revision() const { return history_.newest(); }

  void Forget(Step& step, CallId id) override;
  void TimeOut(Step& step, CallId id) override;
  // Fills group and operation; the owner finds the member by SessionOf.
  void Explain(CallId id, ParkedCall& parked) const override;
  // The session of a parked call; empty: it has no session, or the call is unknown.
  Id128 SessionOf(CallId id) const;

 private:
  struct Key {
    Payload value;
    int64_t revision = 0;
    int64_t created_revision = 0;
    std::optional<absl::Duration> expiration;
    Instant expires_at = absl::InfiniteFuture();
    Id128 session;
  };
  using Keys = absl::btree_map<std::string, Key>;

  struct Item {
    Payload value;
    absl::Duration expiration;
    Instant expires_at;
  };
  struct Queue {
    std::map<int64_t, Item> items;        // by sequence; items that were not handed out
    std::map<int64_t, CallId> consumers;  // by arrival
    int64_t handed_out_count = 0;
    int64_t depth() const { return static_cast<int64_t>(items.size()); }
    bool empty() const { return items.empty() && consumers.empty() && handed_out_count == 0; }
  };
  using Queues = std::map<std::string, Queue>;
  struct HandedOut {
    std::string queue;
    int64_t sequence = 0;
    Item item;
    Id128 operation;
  };

  struct Event {
    std::string key;
    Payload value;
    int64_t created_revision = 0;
    Instant expires_at = absl::InfiniteFuture();
    bool deleted = false;
    bool expired = false;
    Instant at;
  };
  using History = EventLog<Event>;

  struct ParkedGet {
    std::vector<std::string> keys;
    std::vector<std::string> queues;
    int64_t newer_than = 0;
    bool or_queue = false;
    bool keys_only = false;
    bool any_size = false;
    std::string client;
    size_t blocked_on = 0;  // index of the key or queue of S5; the queues follow the keys

    size_t size() const { return keys.size() + queues.size(); }
    bool on_key() const { return blocked_on < keys.size(); }
    const std::string& name() const {
      return on_key() ? keys[blocked_on] : queues[blocked_on - keys.size()];
    }
  };
  struct ParkedPop {
    std::string queue;
    int64_t arrival = 0;
    Id128 operation;
  };
  struct ParkedWatch {
    std::string prefix;
  };
  struct Parked {
    Id128 session;
    std::variant<ParkedGet, ParkedPop, ParkedWatch> what;
  };
  using ParkedCalls = std::map<CallId, Parked>;

  // A key (sequence 0) or a queue item, and the instant when it expires.
  struct Due {
    Instant at;
    std::string name;
    int64_t sequence = 0;
    friend bool operator<(const Due& a, const Due& b) {
      return std::tie(a.at, a.sequence, a.name) < std::tie(b.at, b.sequence, b.name);
    }
  };

  enum class Deletion { kAsked, kExpired };

  // The frame of every entry point: it removes due keys and items first, and answers woken calls
  // last.
  class EntryScope {
   public:
    EntryScope(Store& store, Step& step) : store_(store), step_(step) {
      store_.CatchUp(step_);
      store_.AnswerWoken(step_);  // before a limit may drop the events that they read
    }
    ~EntryScope() { store_.FinishEntry(step_); }
    EntryScope(const EntryScope&) = delete;
    EntryScope& operator=(const EntryScope&) = delete;

   private:
    Store& store_;
    Step& step_;
  };

  // --- store.cc: time, limits, parking
  int64_t NextNumber() { return ++*last_number_; }
  // Removes the keys, items and events that are due.
  void CatchUp(Step& step);
  // Answers the woken watches and sets the timer.
  void FinishEntry(Step& step);
  void ArmTimer();
  template <typename R>
  void AnswerFirst(Step& step, CallId id, const Caller& caller, uint64_t fingerprint, R answer);
  // Whether a value of `size` bytes may replace one of `old_size`, with `around` bytes of
  // structures. May drop events.
  absl::Status CheckValue(MemoryKind kind, int64_t size, int64_t old_size, int64_t around);
  // The parts of CheckValue: for one value, and for `count` values of `size` bytes together.
  absl::Status CheckValueSize(int64_t size) const;
  absl::Status CheckRoom(MemoryKind kind, int64_t count, int64_t size, int64_t old_size,
                         int64_t around);
  // Called after every change of a tenant's store. The end of the step decides whether to destroy
  // it.
  void MarkIdle();
  void Park(Step& step, CallId id, const Caller& caller, absl::Duration wait,
            std::variant<ParkedGet, ParkedPop, ParkedWatch> what);
  // Removes a call from every list.
  Parked Unpark(ParkedCalls::iterator call);
  // The memory of the call's texts; the shard's WaitTable charges the rest.
  static int64_t CostOfParked(const Parked& parked);
  void FailIf(Step& step, const absl::Status& status, std::shared_ptr<const ErrorContext> context,
              const Id128* session);

  // --- store_keys.cc
  // Writes the key with `entry`, whose revisions it ignores, and returns the new revision. The
  // caller wakes the gets when the step has written all of its keys.
  int64_t WriteKey(Step& step, const std::string& key, Key entry);
  // Returns the next key. Precondition: `it` is not end.
  Keys::iterator DeleteKey(Step& step, Keys::iterator it, Deletion why);
  // Whether the key at `it`, or a new one if `it` is end, may have a value of `size` bytes.
  absl::Status CheckKey(const std::string& key, Keys::const_iterator it, int64_t size);
  // Whether all keys of the put may be written; `it` is its first key.
  absl::Status CheckPut(const PutCall& call, Keys::const_iterator it);
  absl::Status CheckKeyCount(int64_t more) const;
  // The memory of a new key beyond its value.
  static int64_t CostOfNewKey(const std::string& key);
  // The key of the first condition that does not hold; null: all hold.
  const std::string* FirstUnmet(const PutCall& call, Keys::const_iterator it) const;
  static int64_t CostOfKey(const std::string& key, const Key& entry);
  void Index(const std::string& key, const Key& entry);
  void Unindex(const std::string& key, const Key& entry);
  KeyValue Show(Instant now, const std::string& key, const Key& entry) const;
  // The index of the first key or queue, cyclically from `from`, that does not satisfy the get. If
  // all satisfy it: get.size(). With or_queue, those before `from` have satisfied it and count.
  size_t FirstUnsatisfied(const ParkedGet& get, size_t from) const;
  absl::StatusOr<GetReply> Read(Instant now, const ParkedGet& get) const;
  void AnswerGet(Step& step, CallId id, const ParkedGet& get) const;
  // Add the get to the list of the key or queue of S5, and remove it.
  void AddWaitingGet(CallId id, const ParkedGet& get);
  void RemoveWaitingGet(CallId id, const ParkedGet& get);
  using GetsByName = absl::flat_hash_map<std::string, absl::btree_set<CallId>>;
  // Answers the gets of this name that are now satisfied. `gets` is gets_by_key_ or gets_by_queue_.
  void WakeGets(Step& step, const GetsByName& gets, const std::string& name);
  void WakeKey(Step& step, const std::string& key) { WakeGets(step, gets_by_key_, key); }

  // --- store_queues.cc
  // The number of values that no consumer has taken.
  int64_t LengthOf(const std::string& queue) const;
  static int64_t CostOfItem(const std::string& name);
  void AddItem(Queue& queue, const std::string& name, int64_t sequence, Item item);
  // An item counts from CountItem to RemoveItem, whether or not it is handed out meanwhile.
  void CountItem(const std::string& name, int64_t sequence, const Item& item);
  void RemoveItem(Step& step, const std::string& name, int64_t sequence, const Item& item);
  // Hands the head to a caller. Precondition: the queue has an item.
  QueuePopReply HandOut(Step& step, Queues::iterator queue, const Id128& operation);
  void KeepHandedOut(Queues::iterator queue, int64_t receipt, HandedOut handed);
  void DropHandedOut(Step& step, std::map<int64_t, HandedOut>::iterator handed);
  void Acknowledge(Step& step, int64_t receipt);
  // Ends an abandoned pop. Returns the queue into which its item went back; null: it had none.
  const std::string* PutBack(Step& step, const Id128& operation);
  // The pop of this operation timed out or was abandoned: its other copies end with it.
  void EndPop(Step& step, const Id128& operation);
  // Restores S3; the queue may be gone afterwards.
  void Serve(Step& step, Queues::iterator queue);
  void ExpireItem(Step& step, const std::string& name, int64_t sequence);
  void DropIfEmpty(Queues::iterator queue);
  // Drops the values of all queues with this prefix that no consumer has taken.
  void DropQueues(Step& step, const std::string& prefix);

  // --- store_watch.cc
  static int64_t CostOfEvent(const Event& event);
  void Emit(int64_t revision, Instant now, Event event);
  void DropOldestEvent();
  // Precondition: the history covers `from_revision`.
  WatchKeysReply ReadEvents(Instant now, const std::string& prefix, int64_t from_revision) const;
  void AnswerWatch(Step& step, CallId id, const std::string& prefix, int64_t from_revision) const;
  void AnswerWoken(Step& step);

  Shard& shard_;
  const GroupKey key_;
  const std::shared_ptr<Tally> tally_;
  FirstAnswers& operations_;
  const std::shared_ptr<ByteLedger> ledger_;
  int64_t* const last_number_;
  absl::Duration data_expiration_ = absl::Seconds(3600);

  Keys keys_;
  absl::flat_hash_map<Id128, absl::btree_set<std::string>> keys_of_session_;

  Queues queues_;
  int64_t queue_item_count_ = 0;
  std::map<int64_t, HandedOut> handed_out_;  // by receipt
  absl::flat_hash_map<Id128, int64_t> receipt_of_operation_;
  CompletedOperations completed_pops_;
  absl::flat_hash_map<int64_t, int64_t> receipt_of_sequence_;

  absl::btree_set<Due> due_;
  TimerId timer_ = 0;
  Instant timer_at_ = absl::InfiniteFuture();

  History history_;
  int64_t history_bytes_ = 0;

  ParkedCalls parked_;
  int64_t watch_count_ = 0;  // of parked watches
  int64_t last_arrival_ = 0;
  GetsByName gets_by_key_;
  GetsByName gets_by_queue_;
  absl::btree_set<std::pair<Id128, CallId>> pops_by_operation_;
  // By length of the prefix, then by prefix: an event looks up the beginning of its key once for
  // each length in use.
  std::map<size_t, absl::flat_hash_map<std::string, absl::btree_set<CallId>>> watches_;
  // Watches to answer at the end of the entry point, and the revision from which each reads.
  std::map<CallId, int64_t> woken_;

  Charge keys_charge_;
  Charge items_charge_;
  Charge events_charge_;
  Charge parked_charge_;
};

// The id of a queue item's row. These ids sort by queue, then by age.
std::string QueueItemId(const std::string& queue, int64_t sequence);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_STORE_STORE_H_
