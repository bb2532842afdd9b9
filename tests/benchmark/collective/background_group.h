// Another group of two ranks on the same processors, which calls one all_reduce behind the other
// while it is let.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_BACKGROUND_GROUP_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_BACKGROUND_GROUP_H_

#include <memory>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/threads/mutex.h"
#include "tests/benchmark/collective/implementations.h"

namespace cohort::benchmark {

class BackgroundGroup {
 public:
  // Forms the group and lets it rest. Errors: those of MemberProcesses.
  static absl::StatusOr<std::unique_ptr<BackgroundGroup>> Start(
      const ImplementationOptions& options);
  ~BackgroundGroup();

  // Returns when the group is at work, or at rest. Errors: why the group has ended.
  absl::Status Work();
  absl::Status Rest();

 private:
  enum class State { kResting, kWorking, kOver };

  explicit BackgroundGroup(Implementations implementations)
      : implementations_(std::move(implementations)), thread_([this] { Run(); }) {}
  absl::Status Await(State state);
  void Run();

  Implementations implementations_;  // of the thread, once it runs
  Mutex mutex_;
  State wanted_ ABSL_GUARDED_BY(mutex_) = State::kResting;
  State state_ ABSL_GUARDED_BY(mutex_) = State::kResting;
  absl::Status ended_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_BACKGROUND_GROUP_H_
