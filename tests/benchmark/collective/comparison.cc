#include "tests/benchmark/collective/comparison.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "tests/benchmark/collective/processes/stop_signal.h"
#include "tests/benchmark/harness/report.h"

namespace cohort::benchmark {
namespace {

// A variant that has failed this often takes no part in later comparisons.
constexpr int kMaxFailures = 2;
// A variant that takes this many times as long as the best of its row stops, after the short
// timing or after the first rounds.
constexpr double kFarBehind = 2.0;
constexpr double kBehind = 1.3;
constexpr int kSureAfter = 3;
// The short timing: long enough to count a few switches between ranks that share a core.
constexpr double kTrialSeconds = 4e-3;
constexpr int64_t kMaxIterations = 1'000'000;

struct Run {
  Variant* variant = nullptr;
  Work work;
  int id = 0;
  int start_count = 0;  // of the processes, when it was prepared there
  int64_t iterations = 0;
  double trial = 0;  // seconds of an iteration
  double spent = 0;
  std::vector<double> seconds;
  absl::Status status;
  bool dropped = false;

  bool IsIn() const { return status.ok() && !dropped; }
  double Typical() const { return seconds.empty() ? trial : Median(seconds); }
};

int64_t IterationsFor(double seconds, double each, int64_t at_least) {
  const double wanted = seconds / std::max(each, 1e-9);
  if (wanted >= static_cast<double>(kMaxIterations)) return kMaxIterations;
  return std::max(at_least, static_cast<int64_t>(wanted));
}

// Prepares the work again if its processes have been started again since.
absl::Status MakeReady(Run& run) {
  MemberProcesses& processes = *run.variant->processes;
  COHORT_RETURN_IF_ERROR(processes.Start());
  if (run.start_count == processes.start_count()) return absl::OkStatus();
  static int last_id = 0;
  run.id = ++last_id;
  COHORT_RETURN_IF_ERROR(processes.Prepare(run.id, run.work));
  run.start_count = processes.start_count();
  return absl::OkStatus();
}

absl::Status Try(const ComparisonOptions& options, Run& run) {
  COHORT_RETURN_IF_ERROR(MakeReady(run));
  MemberProcesses& processes = *run.variant->processes;
  COHORT_ASSIGN_OR_RETURN(run.trial, processes.Run(run.id, 1));
  double slowest = run.trial;
  for (double seconds : {kTrialSeconds / 8, kTrialSeconds}) {
    const int64_t iterations = IterationsFor(seconds, run.trial, 1);
    if (iterations == 1) break;
    const double before = run.trial;
    COHORT_ASSIGN_OR_RETURN(run.trial, processes.Run(run.id, iterations));
    slowest = std::max(before, run.trial);
  }
  // The scheduler makes some variants now fast and now slow: a burst must not take seconds.
  run.iterations =
      IterationsFor(absl::ToDoubleSeconds(options.burst), slowest, options.min_iterations);
  return absl::OkStatus();
}

absl::Status RunSlice(Run& run) {
  COHORT_RETURN_IF_ERROR(MakeReady(run));
  COHORT_ASSIGN_OR_RETURN(const double seconds,
                          run.variant->processes->Run(run.id, run.iterations));
  run.seconds.push_back(seconds);
  run.spent += seconds * static_cast<double>(run.iterations);
  return absl::OkStatus();
}

void Note(const absl::Status& status, Run& run) {
  if (status.ok()) return;
  run.status = status;
  if (absl::IsUnimplemented(status) || absl::IsCancelled(status)) return;
  ++run.variant->failures;
  std::fprintf(stderr, "%s %s, %s: %s\n", run.variant->rows.back().c_str(),
               run.variant->label.c_str(), FormatWork(run.work).c_str(), status.ToString().c_str());
}

// Frees the work's memory. The next call reports a failure.
void Forget(Run& run) {
  if (run.start_count > 0 && run.start_count == run.variant->processes->start_count()) {
    run.variant->processes->Forget(run.id).IgnoreError();
  }
}

bool IsIn(const Run& run, const std::string& implementation, Memory memory) {
  const std::vector<std::string>& rows = run.variant->rows;
  return run.IsIn() && run.variant->memory == memory &&
         std::find(rows.begin(), rows.end(), implementation) != rows.end();
}

// The fastest run of a row; null if the row has none.
Run* BestOf(std::vector<Run>& runs, const std::string& implementation, Memory memory) {
  Run* best = nullptr;
  for (Run& run : runs) {
    if (run.trial <= 0 || !IsIn(run, implementation, memory)) continue;
    if (best == nullptr || run.Typical() < best->Typical()) best = &run;
  }
  return best;
}

void DropThoseBehind(double factor, std::vector<Run>& runs) {
  for (Run& run : runs) {
    if (!run.IsIn() || run.trial <= 0) continue;
    const auto is_behind = [&](const std::string& implementation) {
      const Run* best = BestOf(runs, implementation, run.variant->memory);
      return best != nullptr && run.Typical() > factor * best->Typical();
    };
    const std::vector<std::string>& rows = run.variant->rows;
    if (std::all_of(rows.begin(), rows.end(), is_behind)) {
      run.dropped = true;
      Forget(run);
    }
  }
}

std::vector<Run> MakeRuns(Collective collective, int64_t bytes, std::vector<Variant>& variants) {
  std::vector<Run> runs;
  for (Variant& variant : variants) {
    const std::vector<Collective>& its = variant.collectives;
    if (bytes > variant.max_bytes || variant.failures >= kMaxFailures ||
        std::find(its.begin(), its.end(), collective) == its.end()) {
      continue;
    }
    Run run;
    run.variant = &variant;
    run.work = {collective, bytes, variant.memory, variant.algorithm};
    runs.push_back(std::move(run));
  }
  return runs;
}

// A row for each implementation and memory that has a variant here, in the order of variants.
std::vector<Result> ResultsOf(std::vector<Run>& runs) {
  std::vector<Result> results;
  for (Run& run : runs) {
    for (const std::string& implementation : run.variant->rows) {
      const Memory memory = run.variant->memory;
      auto found = std::find_if(results.begin(), results.end(), [&](const Result& result) {
        return result.implementation == implementation && result.memory == memory;
      });
      if (found == results.end()) {
        Result result;
        result.implementation = implementation;
        result.memory = memory;
        result.names_memory = run.variant->names_memory;
        found = results.insert(results.end(), std::move(result));
      }
      if (!run.status.ok()) found->status.Update(run.status);
    }
  }
  for (Result& result : results) {
    const Run* best = BestOf(runs, result.implementation, result.memory);
    if (best == nullptr) continue;
    result.label = best->variant->label;
    result.iterations = best->iterations;
    result.seconds = best->seconds;
    result.status = absl::OkStatus();
  }
  return results;
}

}  // namespace

std::vector<Result> RunComparison(const ComparisonOptions& options, Collective collective,
                                  int64_t bytes, std::vector<Variant>& variants) {
  std::vector<Run> runs = MakeRuns(collective, bytes, variants);
  for (Run& run : runs) {
    if (StopSignal() != 0) return {};
    Note(Try(options, run), run);
    DropThoseBehind(kFarBehind, runs);
  }
  for (int round = 0; round < options.rounds; ++round) {
    for (Run& run : runs) {
      if (StopSignal() != 0) return {};
      const bool is_done =
          round >= options.min_rounds && run.spent > absl::ToDoubleSeconds(options.budget);
      if (run.IsIn() && !is_done) Note(RunSlice(run), run);
    }
    if (round + 1 == kSureAfter) DropThoseBehind(kBehind, runs);
  }
  std::vector<Result> results = ResultsOf(runs);
  for (Run& run : runs) {
    if (!run.dropped) Forget(run);
  }
  return results;
}

}  // namespace cohort::benchmark
