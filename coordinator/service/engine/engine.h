// Runs the state machine: its shards under locks, and its clock, which leaves out the time that the
// process did not run. It delivers an answer only after the step is durable. It does not use gRPC.
#ifndef COHORT_COORDINATOR_SERVICE_ENGINE_ENGINE_H_
#define COHORT_COORDINATOR_SERVICE_ENGINE_ENGINE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
#include "coordinator/core/core.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/limits.h"
#include "coordinator/core/interface/memory_account.h"
#include "coordinator/core/interface/tenant_accounts.h"
#include "coordinator/journal/journal.h"
#include "coordinator/service/engine/alarm.h"
#include "coordinator/service/engine/awake_clock.h"
#include "coordinator/service/engine/engine_observer.h"
#include "coordinator/service/engine/journal_committer.h"
#include "coordinator/service/engine/reply_sink.h"

namespace cohort::coordinator {

// Identifies a submitted call for Cancel.
struct CallHandle {
  size_t shard = 0;
  CallId id = 0;
};

struct EngineOptions {
  int shards = 4;
  Limits limits;
  // Differs from those of earlier starts of the coordinator; 0: chosen from the wall clock.
  int64_t server_incarnation = 0;
  // Leases stand still in every gap longer than this in which the process does not run. Infinite:
  // they never do, for clocks that jump.
  absl::Duration pause = absl::Milliseconds(200);
  // Also counts while the machine is suspended.
  const Clock* suspend_clock = &SuspendClock();
};

struct EngineStats {
  CoreStats total;
  int64_t calls = 0;
  absl::Duration uptime;
  int64_t server_incarnation = 0;
  int64_t boot = 0;
  bool draining = false;
  std::string journal;
  // The bytes of each kind, also of kinds with 0 bytes, and their sum.
  std::array<int64_t, kMemoryKindCount> memory{};
  int64_t charged_bytes = 0;
  // By name.
  std::vector<std::shared_ptr<const MemoryAccount>> tenants;
};

struct DrainResult {
  int64_t released_count = 0;
  int64_t waiter_count = 0;
  int64_t group_count = 0;
};

// Thread-safe.
class Engine {
 public:
  // Opens the journal and rebuilds the state. `observer` may be null and must outlive the engine.
  // `on_failure` runs once, on a thread of the engine, when the journal fails. Afterwards all
  // answers are UNAVAILABLE, and the process should end. Errors: the journal's; INVALID_ARGUMENT.
  static absl::StatusOr<std::unique_ptr<Engine>> Start(
      const EngineOptions& options, std::unique_ptr<Journal> journal, const Clock& clock,
      EngineObserver* observer = nullptr,
      std::function<void(const absl::Status&)> on_failure = nullptr);
  // Precondition: every submitted call was answered or cancelled, as after Shutdown.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Gives `call` (its id and entropy are set here) to its shard. The reply comes to `sink`, perhaps
  // before this returns. `handle`, when not null, is written before the sink can be reached.
  // ListGroups, and DumpWaits of no group, are answered from all shards.
  void Submit(Call call, ReplySink* sink, CallHandle* handle = nullptr);

  // The caller went away. True: the sink will not be called. False: it was called, is being called,
  // or will be called soon.
  bool Cancel(const CallHandle& handle);

  // Ends the parked calls whose callers have lost the rights for them (ReplySink::CheckRights), before
  // one of them takes a value.
  void EndCallsWithoutRights();

  // Answers all parked calls, and all later calls, with UNAVAILABLE.
  void Shutdown();

  // Refuses new groups and joins in all shards or, with `resume`, allows them again.
  DrainResult Drain(bool release_waiters, bool resume);
  bool draining() const { return draining_.load(std::memory_order_relaxed); }

  EngineStats Stats() const;
  // The account of the memory that the coordinator keeps for callers. The service charges its own
  // part itself.
  MemoryAccount& account() { return *accounts_->whole(); }
  // For objects that may outlive the engine.
  const std::shared_ptr<MemoryAccount>& shared_account() const { return accounts_->whole(); }
  TenantAccounts& tenants() { return *accounts_; }
  // Whether `bytes` more may be kept for all tenants together. Errors: RESOURCE_EXHAUSTED (names
  // the limit, its value and the bytes held).
  absl::Status CheckRoom(MemoryKind kind, int64_t bytes, Share share) const;
  // Valid as long as the engine; a later SetLimits makes a new one.
  const Limits& limits() const { return *limits_.load(std::memory_order_acquire); }
  void SetLimits(const Limits& limits);

  // Stands still while the process does not run.
  const Clock& clock() const { return clock_; }
  int64_t server_incarnation() const { return server_incarnation_; }
  int64_t boot() const { return boot_; }
  bool failed() const { return committer_ != nullptr && committer_->failed(); }

 private:
  struct Shard {
    Mutex mutex;
    std::unique_ptr<Core> core ABSL_GUARDED_BY(mutex);
    // Calls that were not answered at once.
    absl::flat_hash_map<CallId, ReplySink*> parked ABSL_GUARDED_BY(mutex);
    CallId last_id ABSL_GUARDED_BY(mutex) = 0;
    int64_t calls ABSL_GUARDED_BY(mutex) = 0;
    // The last step handed to the committer with records.
    uint64_t last_step ABSL_GUARDED_BY(mutex) = 0;
    bool closed ABSL_GUARDED_BY(mutex) = false;
    // NextTick, in nanoseconds, for the alarm to read without the lock.
    std::atomic<int64_t> next_tick{0};
    // The last AwakeClock::asleep that the core got, in nanoseconds. Written under the mutex.
    std::atomic<int64_t> asleep{0};
  };

  Engine(const EngineOptions& options, std::unique_ptr<Journal> journal, const Clock& clock,
         EngineObserver* observer);

  void MakeShards(const EngineOptions& options, int64_t boot);
  size_t ShardOf(const GroupKey& key) const;

  // Begins every step: returns the time. Passes a sleep to the core first.
  Instant Begin(Shard& shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex);
  // Ends every step under the shard's lock: finds the sinks, parks `own` if it has no reply yet,
  // and queues records for the journal. The caller delivers the rest in `answers` after unlocking.
  void Route(Shard& shard, CallId own, ReplySink* own_sink, Effects& effects, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex);
  // Runs `input` as one step without a call of its own.
  void Step(Shard& shard, absl::FunctionRef<void(Core& core, Instant now, Effects& effects)> input);
  void Prepare(Effects& effects) const;
  // Gives the step's log events to the observer and the answers to their sinks.
  void Deliver(Answers answers, const Effects& effects);
  // One step may end any number of waits. From kLongDelivery on, a thread of its own goes on, and
  // the calls of other tenants have their turns there.
  void Deliver(Answers answers);
  void UpdateTick(Shard& shard) ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard.mutex);
  Instant TickAll();
  void ReportAsleep();
  void Reject(CallId id, ReplySink* sink);

  // Calls that all shards answer together.
  void ListGroups(Call call, ReplySink* sink);
  void DumpWaits(Call call, ReplySink* sink);
  // Returns one shard's reply, which is immediate. Sets `must_wait_for` to the step on which it
  // depends.
  Reply Ask(Shard& shard, Call call, uint64_t* must_wait_for);
  void DeliverAfter(uint64_t step, ReplySink* sink, Reply reply);

  const std::unique_ptr<Journal> journal_;
  const bool durable_;
  const AwakeClock clock_;
  const absl::Duration look_interval_;  // of the alarm at the clock
  absl::Duration reported_asleep_;      // the alarm's thread alone
  EngineObserver* const observer_;
  const Instant started_;
  const int64_t server_incarnation_;
  int64_t boot_ = 1;
  const std::shared_ptr<TenantAccounts> accounts_ =
      std::make_shared<TenantAccounts>(std::make_shared<MemoryAccount>());
  std::vector<std::unique_ptr<Shard>> shards_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> closed_{false};

  Mutex limits_mutex_;
  // Readers have plain pointers, so all versions stay; operators change limits rarely.
  std::vector<std::unique_ptr<const Limits>> limits_versions_ ABSL_GUARDED_BY(limits_mutex_);
  std::atomic<const Limits*> limits_{nullptr};

  std::unique_ptr<JournalCommitter> committer_;  // null when the journal keeps nothing
  std::unique_ptr<Alarm> alarm_;
  std::atomic<bool> delivers_at_once_{false};  // the engine ends
  EventLoop late_deliveries_{"deliveries"};
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_ENGINE_ENGINE_H_
