// One operation and size on a machine that is not idle. It times each implementation's calls one by
// one: alone, with a load on one processor, and with another group of two ranks.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_BACKGROUND_LOAD_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_BACKGROUND_LOAD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/benchmark/collective/background_group.h"
#include "tests/benchmark/collective/comparison.h"
#include "tests/benchmark/collective/implementations.h"
#include "tests/benchmark/collective/processes/work.h"
#include "tests/benchmark/harness/child_process.h"
#include "tests/benchmark/harness/report.h"

namespace cohort::benchmark {

// The work that runs together with the timed calls.
enum class BackgroundKind { kIdle, kLoad, kGroup };
inline constexpr BackgroundKind kBackgroundKinds[] = {BackgroundKind::kIdle, BackgroundKind::kLoad,
                                                      BackgroundKind::kGroup};
// "idle", "load", "group".
std::string NameOf(BackgroundKind kind);

struct BackgroundOptions {
  std::string load;                       // the program processor_load
  double share = 0.3;                     // that it takes of one processor
  uint32_t seed = 1;                      // of the lengths of its time slices
  ImplementationOptions implementations;  // of the other group
  int rounds = 5;
  // The time of one variant in one round, for each background.
  absl::Duration slice = absl::Milliseconds(300);
};

// The background: the load and the other group, which rest unless Set runs them.
class Background {
 public:
  static absl::StatusOr<std::unique_ptr<Background>> Start(const BackgroundOptions& options);
  ~Background();

  absl::Status Set(BackgroundKind kind);

 private:
  explicit Background(std::unique_ptr<ChildProcess> load,
                      std::unique_ptr<BackgroundGroup> background_group)
      : load_(std::move(load)), group_(std::move(background_group)) {}

  std::unique_ptr<ChildProcess> load_;
  std::unique_ptr<BackgroundGroup> group_;
};

// `best` are the results of RunComparison on the idle machine: MeasureWithBackground times, for
// each row, the variant that was best there. In each round all of them run alone, with the load,
// and with the group, so that drift hits all alike. Writes a row for each variant and background:
// {"section":"collective-background","operation","members","bytes","implementation","memory","background",
// "median_us","p99_us","mean_us","calls","times_idle_median","times_idle_p99"}. Writes failed rows
// to standard error, and returns how many failed, here or in the comparison.
int MeasureWithBackground(const BackgroundOptions& options, Background& background,
                          Collective collective, int64_t bytes, const std::vector<Result>& best,
                          std::vector<Variant>& variants, bool json);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_BACKGROUND_LOAD_H_
