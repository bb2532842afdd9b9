// A coordinator, its journal and a bad network, in one thread and in virtual time.
//
// The coordinator is a Core that is driven as its service drives it. Calls and cancellations come
// from the network, ticks from NextTick. The replies of a step wait until its records are durable.
// When the process dies, records that are not durable are lost together with those replies, and the
// next boot begins from the table.
//
// The network delays, reorders, loses and doubles. A lost request or reply, a broken connection and
// a dead coordinator all look the same to a caller: its attempt ends without an answer.
#ifndef COHORT_COORDINATOR_CORE_TESTING_SIMULATED_WORLD_H_
#define COHORT_COORDINATOR_CORE_TESTING_SIMULATED_WORLD_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "coordinator/core/core.h"
#include "coordinator/core/interface/call.h"
#include "coordinator/core/interface/effects.h"
#include "coordinator/core/interface/limits.h"
#include "coordinator/core/interface/payload.h"
#include "coordinator/core/interface/reply.h"
#include "coordinator/core/testing/model_journal.h"
#include "coordinator/core/testing/simulation_random.h"

namespace cohort::coordinator {

struct NetworkFaults {
  double loss = 0;              // of a request, and of a reply
  double duplicate = 0;         // of a request: a copy arrives later, too
  double slow = 0;              // a message takes up to seconds
  double connection_break = 0;  // while a call is parked
};

// One finished step of the coordinator, as the checkers see it.
struct StepView {
  Instant now;
  // The call handled, or null for a tick or a cancellation.
  const Call* call = nullptr;
  // With the calls they answer.
  std::vector<std::pair<const Call*, const Reply*>> replies;
};

class SimulatedWorld {
 public:
  using Done = std::function<void(const Reply*)>;  // null: no answer came

  struct Options {
    uint64_t seed = 1;
    bool durable = true;
    bool trace = false;
    Limits limits;
    // Whether checks that look at the whole machine run after each step, or after one in many.
    bool check_each_step = true;
  };

  explicit SimulatedWorld(const Options& options);
  ~SimulatedWorld();
  SimulatedWorld(const SimulatedWorld&) = delete;
  SimulatedWorld& operator=(const SimulatedWorld&) = delete;

  Instant now() const { return now_; }
  SimulationRandom& random() { return random_; }
  NetworkFaults& faults() { return faults_; }
  bool up() const { return core_ != nullptr; }
  const Core& core() const { return *core_; }
  const ModelJournal& journal() const { return journal_; }
  bool durable() const { return options_.durable; }
  int64_t boot() const { return boot_; }
  int64_t steps() const { return steps_; }
  size_t outstanding_count() const { return outstanding_.size(); }
  int64_t held_bytes() const { return accounts_->whole()->value_bytes(); }

  void After(absl::Duration delay, std::function<void()> action);
  // Runs the earliest event. False: no event is left, or a check failed.
  bool RunOne();

  // Sends one attempt over the network. `done` runs at most once, never inside this function.
  int64_t Send(Call call, Done done);
  // The caller lost interest: `done` will not run, and the coordinator learns of it later, or
  // never.
  void Abandon(int64_t attempt);
  // A call from inside the process, which nothing can disturb but a crash; then `done` runs with
  // null.
  void Ask(Call call, Done done);

  // The process dies now and starts again after `down`.
  void Crash(absl::Duration down);
  // As a rolling update does it: drains, answers all that is parked, then stops once all is
  // durable.
  void Stop(absl::Duration down);

  // Checkers. `on_step` sees steps as they happen; `on_release` sees replies once they are durable.
  std::function<void(const StepView&)> on_step;
  std::function<void(const Call&, const Reply&)> on_release;
  // A new process is there.
  std::function<void()> on_start;

  void Fail(std::string what);
  const std::string& failure() const { return failure_; }
  bool tracing() const { return options_.trace; }
  // Kept only for the last events.
  void Trace(std::string line);
  std::string TraceText() const;

 private:
  struct Outstanding {
    std::shared_ptr<const Call> call;
    int64_t attempt = 0;  // 0: a copy without a waiting caller
    Done direct;
    Instant deadline;
  };
  struct Answer {
    Outstanding to;
    Reply reply;
  };
  struct Event {
    Instant at;
    int64_t order = 0;
    std::function<void()> action;
    friend bool operator<(const Event& a, const Event& b) {  // for a heap with the earliest on top
      return a.at != b.at ? a.at > b.at : a.order > b.order;
    }
  };

  absl::Duration Delay();
  void Arrive(std::shared_ptr<const Call> call, int64_t attempt, Done direct);
  void BreakAttempt(int64_t attempt, absl::Duration after);
  void CancelLater(CallId id, absl::Duration after);
  template <typename F>
  void Input(const Call* call, F input);
  void CheckMachine();
  void ScheduleTick();
  void BeginCommit();
  void Release(std::vector<Answer> answers);
  void Start();

  const Options options_;
  SimulationRandom random_;
  NetworkFaults faults_;
  Instant now_;
  std::vector<Event> events_;
  int64_t last_order_ = 0;

  std::shared_ptr<TenantAccounts> accounts_;
  std::unique_ptr<Core> core_;
  int64_t boot_ = 0;
  CallId last_id_ = 0;
  std::map<CallId, Outstanding> outstanding_;
  std::set<std::pair<Instant, CallId>> deadlines_;
  Instant tick_at_ = absl::InfiniteFuture();
  int64_t steps_ = 0;

  ModelJournal journal_;
  std::deque<std::vector<Answer>> withheld_;  // of the journal's pending steps
  size_t committing_ = 0;                     // steps that are being written

  std::map<int64_t, Done> attempts_;
  int64_t last_attempt_ = 0;

  std::string failure_;
  std::deque<std::string> trace_;
};

// "enter_round", for traces and failures.
const char* CallName(const Call& call);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_SIMULATED_WORLD_H_
