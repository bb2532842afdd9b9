#include "tests/benchmark/collective/background_load.h"

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

// The time between two readings of the driver's clock, on an idle machine; with other work many
// times that.
constexpr double kBatchSeconds = 5e-3;
constexpr int64_t kMinBatch = 100;
constexpr int64_t kMaxBatch = 20'000;

// No number of a comparison reaches it.
constexpr int kFirstId = 1'000'000;

struct Run {
  Variant* variant = nullptr;
  std::string implementation;
  bool names_memory = false;
  int id = 0;
  int64_t batch = kMinBatch;
  absl::Status status;
};

std::vector<Run> RunsOf(const std::vector<Result>& best, std::vector<Variant>& variants) {
  static int last_id = kFirstId;
  std::vector<Run> runs;
  for (const Result& result : best) {
    const auto found = std::find_if(variants.begin(), variants.end(), [&](const Variant& variant) {
      const std::vector<std::string>& rows = variant.rows;
      return variant.label == result.label && variant.memory == result.memory &&
             std::find(rows.begin(), rows.end(), result.implementation) != rows.end();
    });
    if (found == variants.end() || !result.status.ok()) continue;
    Run run;
    run.variant = &*found;
    run.implementation = result.implementation;
    run.names_memory = result.names_memory;
    run.id = ++last_id;
    const double batch = kBatchSeconds / std::max(Median(result.seconds), 1e-9);
    run.batch = std::clamp(static_cast<int64_t>(batch), kMinBatch, kMaxBatch);
    runs.push_back(std::move(run));
  }
  return runs;
}

absl::Status RunSlice(const BackgroundOptions& options, BackgroundKind kind, Run& run) {
  MemberProcesses& processes = *run.variant->processes;
  const absl::Time end = absl::Now() + options.slice;
  do {
    if (StopSignal() != 0) return absl::CancelledError("stopped");
    COHORT_RETURN_IF_ERROR(processes.Sample(run.id, run.batch, NameOf(kind)));
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
                  "implementation", "memory", "background", "median us", "p99 us", "mean us",
                  "x median", "x p99");
      header_printed = true;
    }
    std::printf("%-14s %9lld %-15s %-10s %-6s %11.3f %11.3f %11.3f %9.2f %9.2f\n",
                row.value("operation", "").c_str(),
                static_cast<long long>(row.value("bytes", int64_t{0})),
                row.value("implementation", "").c_str(), row.value("memory", "").c_str(),
                row.value("background", "").c_str(), row.value("median_us", 0.0),
                row.value("p99_us", 0.0), row.value("mean_us", 0.0),
                row.value("times_idle_median", 0.0), row.value("times_idle_p99", 0.0));
  }
  std::fflush(stdout);
}

absl::Status PrintTimes(const Run& run, Collective collective, int64_t bytes, bool json) {
  double idle_median = 0;
  double idle_p99 = 0;
  for (const BackgroundKind kind : kBackgroundKinds) {
    COHORT_ASSIGN_OR_RETURN(const CallTimes times,
                            run.variant->processes->TimesOf(run.id, NameOf(kind)));
    if (kind == BackgroundKind::kIdle) {
      idle_median = times.median_us;
      idle_p99 = times.p99_us;
    }
    Row row;
    row["section"] = "collective-background";
    row["operation"] = CollectiveName(collective);
    row["members"] = run.variant->processes->members();
    row["bytes"] = bytes;
    row["implementation"] = run.implementation;
    if (run.names_memory) row["memory"] = MemoryName(run.variant->memory);
    row["background"] = NameOf(kind);
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

std::string NameOf(BackgroundKind kind) {
  switch (kind) {
    case BackgroundKind::kIdle:
      return "idle";
    case BackgroundKind::kLoad:
      return "load";
    case BackgroundKind::kGroup:
      return "group";
  }
  return "unknown";
}

absl::StatusOr<std::unique_ptr<Background>> Background::Start(const BackgroundOptions& options) {
  ChildProcessOptions load;
  load.command = {options.load, "--share", absl::StrCat(options.share), "--seed",
                  absl::StrCat(options.seed)};
  load.log_path = absl::StrCat(options.implementations.scratch, "/processor_load.log");
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(load));
  COHORT_RETURN_IF_ERROR(process->Signal(SIGSTOP));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<BackgroundGroup> background_group,
                          BackgroundGroup::Start(options.implementations));
  return absl::WrapUnique(new Background(std::move(process), std::move(background_group)));
}

// A stopped process could not end.
Background::~Background() { load_->Signal(SIGCONT).IgnoreError(); }

absl::Status Background::Set(BackgroundKind kind) {
  COHORT_RETURN_IF_ERROR(load_->Signal(kind == BackgroundKind::kLoad ? SIGCONT : SIGSTOP));
  return kind == BackgroundKind::kGroup ? group_->Work() : group_->Rest();
}

int MeasureWithBackground(const BackgroundOptions& options, Background& background,
                          Collective collective, int64_t bytes, const std::vector<Result>& best,
                          std::vector<Variant>& variants, bool json) {
  std::vector<Run> runs = RunsOf(best, variants);
  for (Run& run : runs) {
    const Work work = {collective, bytes, run.variant->memory, run.variant->algorithm};
    run.status = run.variant->processes->Start();
    if (run.status.ok()) run.status = run.variant->processes->Prepare(run.id, work);
  }
  for (int round = 0; round < options.rounds && StopSignal() == 0; ++round) {
    for (const BackgroundKind kind : kBackgroundKinds) {
      for (Run& run : runs) {
        if (!run.status.ok()) continue;
        run.status = background.Set(kind);
        if (run.status.ok()) run.status = RunSlice(options, kind, run);
        // The members that are not timed sleep, and the background does, too.
        run.status.Update(background.Set(BackgroundKind::kIdle));
      }
    }
  }
  int failures = static_cast<int>(std::count_if(
      best.begin(), best.end(), [](const Result& result) { return !result.status.ok(); }));
  for (Run& run : runs) {
    if (run.status.ok()) run.status = PrintTimes(run, collective, bytes, json);
    if (run.status.ok()) run.status = run.variant->processes->Forget(run.id);
    if (run.status.ok()) continue;
    ++failures;
    std::fprintf(stderr, "%s %lld, with background, %s: %s\n", CollectiveName(collective).c_str(),
                 static_cast<long long>(bytes), run.implementation.c_str(),
                 run.status.ToString().c_str());
  }
  return failures;
}

}  // namespace cohort::benchmark
