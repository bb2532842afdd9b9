// One cell on a machine that is not idle. It times each implementation's calls one by one: alone,
// beside a load on one processor, and beside another group of two ranks.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_BUSY_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_BUSY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "tests/benchmark/child_process.h"
#include "tests/benchmark/collective/contest.h"
#include "tests/benchmark/collective/field.h"
#include "tests/benchmark/collective/processes/work.h"
#include "tests/benchmark/collective/rival.h"
#include "tests/benchmark/report.h"

namespace cohort::benchmark {

// The work that runs beside the timed calls.
enum class Beside { kNothing, kLoad, kGroup };
inline constexpr Beside kBesides[] = {Beside::kNothing, Beside::kLoad, Beside::kGroup};
// "idle", "load", "group".
std::string NameOf(Beside beside);

struct BusyOptions {
  std::string load;    // the program busy_load
  double share = 0.3;  // that it takes of one processor
  uint32_t seed = 1;   // of the lengths of its time slices
  FieldOptions field;  // of the other group
  int rounds = 5;
  // The time of one entrant in one round, for each background.
  absl::Duration slice = absl::Milliseconds(300);
};

// The background: the load and the other group, which rest unless Set runs them.
class Background {
 public:
  static absl::StatusOr<std::unique_ptr<Background>> Start(const BusyOptions& options);
  ~Background();

  absl::Status Set(Beside beside);

 private:
  explicit Background(std::unique_ptr<ChildProcess> load, std::unique_ptr<Rival> rival)
      : load_(std::move(load)), rival_(std::move(rival)) {}

  std::unique_ptr<ChildProcess> load_;
  std::unique_ptr<Rival> rival_;
};

// `best` are the results of RunContest on the idle machine: RunBusy times, for each row, the
// entrant that was best there. In each round all of them run alone, beside the load, and beside the
// group, so that drift hits all alike. Writes a row for each entrant and background:
// {"section":"collective-busy","operation","members","bytes","implementation","memory","beside",
// "median_us","p99_us","mean_us","calls","times_idle_median","times_idle_p99"}. Writes failed rows
// to standard error, and returns how many failed, here or in the contest.
int RunBusy(const BusyOptions& options, Background& background, Collective collective,
            int64_t bytes, const std::vector<Result>& best, std::vector<Entrant>& entrants,
            bool json);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_BUSY_H_
