// Members of a group for tests: many on few connections, their answers awaited with a deadline.
#ifndef COHORT_TESTS_FAILURE_TESTING_MEMBERS_H_
#define COHORT_TESTS_FAILURE_TESTING_MEMBERS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/process_group/process_group.h"

namespace cohort::testing {

// Longer than any step of these tests on a busy machine; only a hang reaches it.
inline constexpr absl::Duration kTimeout = absl::Seconds(60);

// The seed of this run, which it prints; COHORT_TEST_SEED sets it.
uint64_t TestSeed();

// A connection that finds a coordinator again soon after its restart.
std::shared_ptr<client::Connection> Connect(const std::string& address);

client::ProcessGroupOptions MemberOptions(std::shared_ptr<client::Connection> connection,
                                          const std::string& group, int rank, int world_size);

using Members = std::vector<std::unique_ptr<client::ProcessGroup>>;

// Joins ranks 0..world_size-1, spread over `connections`. `adjust` (may be null) edits the options
// of each. A member that could not join is null, and fails the test.
Members JoinAll(const std::vector<std::shared_ptr<client::Connection>>& connections,
                const std::string& group, int world_size,
                const std::function<void(client::ProcessGroupOptions&)>& adjust = nullptr);

// Polls until `condition` holds; false if it does not within `timeout`.
bool Eventually(const std::function<bool()>& condition, absl::Duration timeout = kTimeout);

// Waits until `count` calls of the group are parked at the coordinator, not counting watches.
bool AwaitParked(const std::string& address, const std::string& group, int64_t count,
                 absl::Duration timeout = kTimeout);

// Runs body(0)..body(count-1), each on a thread of its own, and waits for all.
void OnThreads(int count, const std::function<void(int)>& body);

// Answers of `count` asynchronous calls. Slots outlive this object: an answer may come late.
template <typename T>
class Answers {
 public:
  explicit Answers(int count) : state_(std::make_shared<State>(count)) {}

  // The callback for call number `index`; it is called once.
  std::function<void(T)> Slot(int index) {
    return [state = state_, index](T value) {
      MutexLock lock(&state->mutex);
      if (!state->values[index].has_value()) ++state->arrived;
      state->values[index].emplace(std::move(value));
    };
  }
  // False if not all answers came.
  bool AwaitAll(absl::Duration timeout = kTimeout) {
    return AwaitCount(static_cast<int>(state_->values.size()), timeout);
  }
  bool AwaitCount(int count, absl::Duration timeout = kTimeout) {
    MutexLock lock(&state_->mutex);
    const auto enough = [this, count] { return state_->arrived >= count; };
    return state_->mutex.AwaitWithTimeout(absl::Condition(&enough), timeout);
  }
  int arrived() const {
    MutexLock lock(&state_->mutex);
    return state_->arrived;
  }
  // Precondition: the answer came.
  T& operator[](int index) {
    MutexLock lock(&state_->mutex);
    return *state_->values[index];
  }

 private:
  struct State {
    explicit State(int count) : values(count) {}
    mutable Mutex mutex;
    std::vector<std::optional<T>> values;
    int arrived = 0;
  };
  const std::shared_ptr<State> state_;
};

struct BarrierAnswer {
  absl::Status status;
  client::RoundReport report;
};
std::function<void(absl::Status, client::RoundReport)> BarrierSlot(Answers<BarrierAnswer>& answers,
                                                                   int index);

// Collects events for tests that wait for them. Slots outlive this object.
class Events {
 public:
  std::function<void(const client::GroupEvent&)> Slot();
  // Waits for the first event of this kind; absent if none came.
  std::optional<client::GroupEvent> Await(client::EventKind kind,
                                          absl::Duration timeout = kTimeout);

 private:
  struct State {
    Mutex mutex;
    std::vector<client::GroupEvent> events;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_TESTING_MEMBERS_H_
