#include "tests/benchmark/rendezvous_cells.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "tests/benchmark/measure.h"

namespace cohort::benchmark {
namespace {

constexpr int64_t kGatherBytes = 64;
constexpr int64_t kHandoffBytes = 1024;
constexpr int64_t kPutBytes = 64;

const char* OperationName(OperationKind kind) {
  switch (kind) {
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kAllGather:
      return "all_gather_object";
    case OperationKind::kHandoff:
      return "handoff";
    case OperationKind::kPut:
      return "ops";
    case OperationKind::kJoin:
      return "join";
  }
  return "";
}

// With no more members than shared connections the two shapes are one.
void AddShapes(OperationKind kind, int members, int64_t bytes, std::vector<Cell>& cells) {
  cells.push_back({kind, members, bytes, Shape::kPerMember});
  if (members > kSharedConnections) cells.push_back({kind, members, bytes, Shape::kShared});
}

std::vector<Cell> AllCells(const RendezvousOptions& options) {
  std::vector<Cell> cells;
  for (OperationKind kind : {OperationKind::kBarrier, OperationKind::kAllGather}) {
    const int64_t bytes = kind == OperationKind::kAllGather ? kGatherBytes : 0;
    for (int members : {2, 8, 32, 128, 256, 1024}) AddShapes(kind, members, bytes, cells);
  }
  cells.push_back({OperationKind::kHandoff, 2, kHandoffBytes, Shape::kPerMember});
  for (int callers : {1, 8, 64}) AddShapes(OperationKind::kPut, callers, kPutBytes, cells);
  for (int members : {256, 1024}) AddShapes(OperationKind::kJoin, members, 0, cells);

  const auto unwanted = [&options](const Cell& cell) {
    const std::vector<std::string>& operations = options.operations;
    const std::vector<int>& members = options.members;
    if (!operations.empty() && std::find(operations.begin(), operations.end(),
                                         OperationName(cell.kind)) == operations.end()) {
      return true;
    }
    return !members.empty() &&
           std::find(members.begin(), members.end(), cell.members) == members.end();
  };
  cells.erase(std::remove_if(cells.begin(), cells.end(), unwanted), cells.end());
  return cells;
}

MeasureOptions OptionsFor(const Cell& cell, bool quick) {
  MeasureOptions options;
  options.repetitions = cell.members <= 32 ? 200 : cell.members <= 256 ? 50 : 20;
  if (cell.kind == OperationKind::kHandoff) options.repetitions = 20;  // of many hand-offs each
  if (cell.kind == OperationKind::kPut) options.repetitions = 7;       // of half a second each
  if (cell.kind == OperationKind::kJoin) options.repetitions = 7;
  options.warm_up = cell.kind == OperationKind::kPut || cell.kind == OperationKind::kJoin ? 1 : 5;
  options.budget = absl::Seconds(4);
  if (quick) {
    options.repetitions = std::max(3, options.repetitions / 5);
    options.warm_up = std::min(options.warm_up, 2);
    options.budget = absl::Seconds(1);
  }
  return options;
}

Row MakeRow(const Cell& cell, const Contender& contender, double floor_us) {
  const Summary summary = Summarise(contender.latencies);
  Row row;
  row["section"] = "rendezvous";
  row["operation"] = OperationName(cell.kind);
  row["members"] = cell.members;
  row["bytes"] = cell.bytes;
  row["implementation"] = contender.name;
  row["median_us"] = Rounded(summary.median_us, 1);
  row["min_us"] = Rounded(summary.min_us, 1);
  row["max_us"] = Rounded(summary.max_us, 1);
  row["connections"] = cell.shape == Shape::kPerMember ? "per-member" : "shared-8";
  row["transport"] = "tcp";
  row["repetitions"] = cell.kind == OperationKind::kPut
                           ? contender.repetitions
                           : static_cast<int>(contender.latencies.size());
  if (!contender.journal.empty()) row["journal"] = contender.journal;
  if (!contender.ops_per_s.empty()) row["ops_per_s"] = Rounded(Median(contender.ops_per_s), 0);
  if (floor_us > 0) row["times_floor"] = Rounded(summary.median_us / floor_us, 2);
  return row;
}

int RunCell(const Cell& cell, bool quick,
            const std::vector<std::unique_ptr<Implementation>>& implementations, Report& report) {
  int failures = 0;
  const auto failed = [&](const std::string& name, const absl::Status& status) {
    ++failures;
    std::fprintf(stderr, "%s, %d members, %s: %s\n", OperationName(cell.kind), cell.members,
                 name.c_str(), status.ToString().c_str());
  };

  std::vector<Contender> contenders;
  for (const auto& implementation : implementations) {
    absl::StatusOr<Operation> operation = implementation->Prepare(cell);
    if (operation.ok()) {
      Contender contender;
      contender.name = implementation->name();
      contender.journal = implementation->journal();
      contender.run = *std::move(operation);
      contenders.push_back(std::move(contender));
    } else if (!absl::IsUnimplemented(operation.status())) {
      failed(implementation->name(), operation.status());
    }
  }

  MeasureInterleaved(OptionsFor(cell, quick), contenders);

  double floor_us = 0;
  for (const Contender& contender : contenders) {
    if (contender.name == "grpc-floor" && contender.status.ok()) {
      floor_us = Summarise(contender.latencies).median_us;
    }
  }
  for (const Contender& contender : contenders) {
    if (contender.status.ok()) {
      report.Add(MakeRow(cell, contender, floor_us));
    } else {
      failed(contender.name, contender.status);
    }
  }
  return failures;
}

}  // namespace

int RunRendezvous(const RendezvousOptions& options,
                  const std::vector<std::unique_ptr<Implementation>>& implementations,
                  Report& report) {
  int failures = 0;
  for (const Cell& cell : AllCells(options)) {
    failures += RunCell(cell, options.quick, implementations, report);
  }
  return failures;
}

void RaiseDescriptorLimit() {
  rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) std::perror("cannot raise the number of open files");
}

}  // namespace cohort::benchmark
