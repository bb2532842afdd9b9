#include "tests/benchmark/rendezvous/rendezvous_table.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "absl/status/status.h"
#include "tests/benchmark/rendezvous/measure.h"

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

// With no more members than shared connections both kinds of connections are the same.
void AddConfigs(OperationKind kind, int members, int64_t bytes, std::vector<Config>& configs) {
  configs.push_back({kind, members, bytes, Connections::kPerMember});
  if (members > kSharedConnections) configs.push_back({kind, members, bytes, Connections::kShared});
}

std::vector<Config> AllConfigs(const RendezvousOptions& options) {
  std::vector<Config> configs;
  for (OperationKind kind : {OperationKind::kBarrier, OperationKind::kAllGather}) {
    const int64_t bytes = kind == OperationKind::kAllGather ? kGatherBytes : 0;
    for (int members : {2, 8, 32, 128, 256, 1024}) AddConfigs(kind, members, bytes, configs);
  }
  configs.push_back({OperationKind::kHandoff, 2, kHandoffBytes, Connections::kPerMember});
  for (int callers : {1, 8, 64}) AddConfigs(OperationKind::kPut, callers, kPutBytes, configs);
  for (int members : {256, 1024}) AddConfigs(OperationKind::kJoin, members, 0, configs);

  const auto unwanted = [&options](const Config& config) {
    const std::vector<std::string>& operations = options.operations;
    const std::vector<int>& members = options.members;
    if (!operations.empty() && std::find(operations.begin(), operations.end(),
                                         OperationName(config.kind)) == operations.end()) {
      return true;
    }
    return !members.empty() &&
           std::find(members.begin(), members.end(), config.members) == members.end();
  };
  configs.erase(std::remove_if(configs.begin(), configs.end(), unwanted), configs.end());
  return configs;
}

MeasureOptions OptionsFor(const Config& config, bool quick) {
  MeasureOptions options;
  options.repetitions = config.members <= 32 ? 200 : config.members <= 256 ? 50 : 20;
  if (config.kind == OperationKind::kHandoff) options.repetitions = 20;  // of many hand-offs each
  if (config.kind == OperationKind::kPut) options.repetitions = 7;       // of half a second each
  if (config.kind == OperationKind::kJoin) options.repetitions = 7;
  options.warm_up =
      config.kind == OperationKind::kPut || config.kind == OperationKind::kJoin ? 1 : 5;
  options.budget = absl::Seconds(4);
  if (quick) {
    options.repetitions = std::max(3, options.repetitions / 5);
    options.warm_up = std::min(options.warm_up, 2);
    options.budget = absl::Seconds(1);
  }
  return options;
}

Row MakeRow(const Config& config, const Measurement& measurement, double bare_grpc_us) {
  const Summary summary = Summarise(measurement.latencies);
  Row row;
  row["section"] = "rendezvous";
  row["operation"] = OperationName(config.kind);
  row["members"] = config.members;
  row["bytes"] = config.bytes;
  row["implementation"] = measurement.name;
  row["median_us"] = Rounded(summary.median_us, 1);
  row["min_us"] = Rounded(summary.min_us, 1);
  row["max_us"] = Rounded(summary.max_us, 1);
  row["connections"] = config.connections == Connections::kPerMember ? "per-member" : "shared-8";
  row["transport"] = "tcp";
  row["repetitions"] = config.kind == OperationKind::kPut
                           ? measurement.repetitions
                           : static_cast<int>(measurement.latencies.size());
  if (!measurement.journal.empty()) row["journal"] = measurement.journal;
  if (!measurement.ops_per_s.empty()) row["ops_per_s"] = Rounded(Median(measurement.ops_per_s), 0);
  if (bare_grpc_us > 0) row["times_bare_grpc"] = Rounded(summary.median_us / bare_grpc_us, 2);
  return row;
}

int RunConfig(const Config& config, bool quick,
              const std::vector<std::unique_ptr<Implementation>>& implementations, Report& report) {
  int failures = 0;
  const auto failed = [&](const std::string& name, const absl::Status& status) {
    ++failures;
    std::fprintf(stderr, "%s, %d members, %s: %s\n", OperationName(config.kind), config.members,
                 name.c_str(), status.ToString().c_str());
  };

  std::vector<Measurement> measurements;
  for (const auto& implementation : implementations) {
    absl::StatusOr<Operation> operation = implementation->Prepare(config);
    if (operation.ok()) {
      Measurement measurement;
      measurement.name = implementation->name();
      measurement.journal = implementation->journal();
      measurement.run = *std::move(operation);
      measurements.push_back(std::move(measurement));
    } else if (!absl::IsUnimplemented(operation.status())) {
      failed(implementation->name(), operation.status());
    }
  }

  MeasureInterleaved(OptionsFor(config, quick), measurements);

  double bare_grpc_us = 0;
  for (const Measurement& measurement : measurements) {
    if (measurement.name == "bare-grpc" && measurement.status.ok()) {
      bare_grpc_us = Summarise(measurement.latencies).median_us;
    }
  }
  for (const Measurement& measurement : measurements) {
    if (measurement.status.ok()) {
      report.Add(MakeRow(config, measurement, bare_grpc_us));
    } else {
      failed(measurement.name, measurement.status);
    }
  }
  return failures;
}

}  // namespace

int RunRendezvous(const RendezvousOptions& options,
                  const std::vector<std::unique_ptr<Implementation>>& implementations,
                  Report& report) {
  int failures = 0;
  for (const Config& config : AllConfigs(options)) {
    failures += RunConfig(config, options.quick, implementations, report);
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
