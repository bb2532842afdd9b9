#include "tests/benchmark/collective/busy.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "tests/benchmark/collective/processes/stop_signal.h"

namespace cohort::benchmark {
namespace {

// The time between two readings of the driver's clock, on an idle machine; beside other work many
// times that.
constexpr double kBatchSeconds = 5e-3;
constexpr int64_t kMinBatch = 100;
constexpr int64_t kMaxBatch = 20'000;

// No number of a contest reaches it.
constexpr int kFirstId = 1'000'000;

struct Run {
  Entrant* entrant = nullptr;
  std::string implementation;
  bool names_memory = false;
  int id = 0;
  int64_t batch = kMinBatch;
  absl::Status status;
};

std::vector<Run> RunsOf(const std::vector<Result>& best, std::vector<Entrant>& entrants) {
  static int last_id = kFirstId;
  std::vector<Run> runs;
  for (const Result& result : best) {
    const auto found = std::find_if(entrants.begin(), entrants.end(), [&](const Entrant& entrant) {
      const std::vector<std::string>& rows = entrant.implementations;
      return entrant.label == result.label && entrant.memory == result.memory &&
             std::find(rows.begin(), rows.end(), result.implementation) != rows.end();
    });
    if (found == entrants.end() || !result.status.ok()) continue;
    Run run;
    run.entrant = &*found;
    run.implementation = result.implementation;
    run.names_memory = result.names_memory;
    run.id = ++last_id;
    const double batch = kBatchSeconds / std::max(Median(result.seconds), 1e-9);
    run.batch = std::clamp(static_cast<int64_t>(batch), kMinBatch, kMaxBatch);
    runs.push_back(std::move(run));
  }
  return runs;
}

absl::Status RunSlice(const BusyOptions& options, Beside beside, Run& run) {
  Team& team = *run.entrant->team;
  const absl::Time end = absl::Now() + options.slice;
  do {
    if (StopSignal() != 0) return absl::CancelledError("stopped");
    COHORT_RETURN_IF_ERROR(team.Sample(run.id, run.batch, NameOf(beside)));
  } while (absl::Now() < end);
  return absl::OkStatus();
}

void Print(const Row& row, bool json) {
  if (json) {
    std::printf("%s\n", row.dump().c_str());
  } else {
    static bool header_printed = false;
    if (!header_printed) {
      std::printf("%-14s %9s %-15s %-10s %-6s %11s %11s %11s %9s %9s\n", "operation", "bytes",
                  "implementation", "memory", "beside", "median us", "p99 us", "mean us",
                  "x median", "x p99");
      header_printed = true;
    }
    std::printf("%-14s %9lld %-15s %-10s %-6s %11.3f %11.3f %11.3f %9.2f %9.2f\n",
                row.value("operation", "").c_str(),
                static_cast<long long>(row.value("bytes", int64_t{0})),
                row.value("implementation", "").c_str(), row.value("memory", "").c_str(),
                row.value("beside", "").c_str(), row.value("median_us", 0.0),
                row.value("p99_us", 0.0), row.value("mean_us", 0.0),
                row.value("times_idle_median", 0.0), row.value("times_idle_p99", 0.0));
  }
  std::fflush(stdout);
}

absl::Status PrintTimes(const Run& run, Collective collective, int64_t bytes, bool json) {
  double idle_median = 0;
  double idle_p99 = 0;
  for (const Beside beside : kBesides) {
    COHORT_ASSIGN_OR_RETURN(const CallTimes times,
                            run.entrant->team->TimesOf(run.id, NameOf(beside)));
    if (beside == Beside::kNothing) {
      idle_median = times.median_us;
      idle_p99 = times.p99_us;
    }
    Row row;
    row["section"] = "collective-busy";
    row["operation"] = CollectiveName(collective);
    row["members"] = run.entrant->team->members();
    row["bytes"] = bytes;
    row["implementation"] = run.implementation;
    if (run.names_memory) row["memory"] = MemoryName(run.entrant->memory);
    row["beside"] = NameOf(beside);
    row["median_us"] = Rounded(times.median_us, 3);
    row["p99_us"] = Rounded(times.p99_us, 3);
    row["mean_us"] = Rounded(times.mean_us, 3);
    row["calls"] = times.calls;
    row["times_idle_median"] = Rounded(times.median_us / std::max(idle_median, 1e-3), 2);
    row["times_idle_p99"] = Rounded(times.p99_us / std::max(idle_p99, 1e-3), 2);
    Print(row, json);
  }
  return absl::OkStatus();
}

}  // namespace

std::string NameOf(Beside beside) {
  switch (beside) {
    case Beside::kNothing:
      return "idle";
    case Beside::kLoad:
      return "load";
    case Beside::kGroup:
      return "group";
  }
  return "unknown";
}

absl::StatusOr<std::unique_ptr<Background>> Background::Start(const BusyOptions& options) {
  ChildProcessOptions load;
  load.command = {options.load, "--share", absl::StrCat(options.share), "--seed",
                  absl::StrCat(options.seed)};
  load.log_path = absl::StrCat(options.field.scratch, "/busy_load.log");
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(load));
  COHORT_RETURN_IF_ERROR(process->Signal(SIGSTOP));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Rival> rival, Rival::Start(options.field));
  return absl::WrapUnique(new Background(std::move(process), std::move(rival)));
}

// A stopped process could not end.
Background::~Background() { load_->Signal(SIGCONT).IgnoreError(); }

absl::Status Background::Set(Beside beside) {
  COHORT_RETURN_IF_ERROR(load_->Signal(beside == Beside::kLoad ? SIGCONT : SIGSTOP));
  return beside == Beside::kGroup ? rival_->Work() : rival_->Rest();
}

int RunBusy(const BusyOptions& options, Background& background, Collective collective,
            int64_t bytes, const std::vector<Result>& best, std::vector<Entrant>& entrants,
            bool json) {
  std::vector<Run> runs = RunsOf(best, entrants);
  for (Run& run : runs) {
    const Work work = {collective, bytes, run.entrant->memory, run.entrant->way};
    run.status = run.entrant->team->Start();
    if (run.status.ok()) run.status = run.entrant->team->Prepare(run.id, work);
  }
  for (int round = 0; round < options.rounds && StopSignal() == 0; ++round) {
    for (const Beside beside : kBesides) {
      for (Run& run : runs) {
        if (!run.status.ok()) continue;
        run.status = background.Set(beside);
        if (run.status.ok()) run.status = RunSlice(options, beside, run);
        // The members that are not timed sleep, and the background does, too.
        run.status.Update(background.Set(Beside::kNothing));
      }
    }
  }
  int failures = static_cast<int>(std::count_if(
      best.begin(), best.end(), [](const Result& result) { return !result.status.ok(); }));
  for (Run& run : runs) {
    if (run.status.ok()) run.status = PrintTimes(run, collective, bytes, json);
    if (run.status.ok()) run.status = run.entrant->team->Forget(run.id);
    if (run.status.ok()) continue;
    ++failures;
    std::fprintf(stderr, "%s %lld, busy, %s: %s\n", CollectiveName(collective).c_str(),
                 static_cast<long long>(bytes), run.implementation.c_str(),
                 run.status.ToString().c_str());
  }
  return failures;
}

}  // namespace cohort::benchmark
