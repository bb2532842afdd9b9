// How much a tenant that floods the coordinator slows the others.
//
//   tests/benchmark/run.sh flood                    # both protocols, with and without the limit
//   tests/benchmark/run.sh flood --limit 20000 --repetitions 20
//
// Turns with and without the flood alternate: a process of another tenant is stopped (SIGSTOP) and
// continued. In each turn a group of 8 members passes barriers, and a client writes a key again and
// again. Members, flood and coordinator share the processors of this machine, so the figures have
// the work of the flooding client in them, too.
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/store_client.h"
#include "tests/benchmark/harness/child_process.h"
#include "tests/benchmark/harness/coordinator_process.h"
#include "tests/benchmark/harness/report.h"
#include "tests/benchmark/rendezvous/benchmark_group.h"

namespace cohort::benchmark {
namespace {

struct Options {
  std::string coordinator;
  std::string flood;
  std::string scratch = "/tmp";
  std::vector<std::string> protocols = {"framed", "grpc"};
  std::vector<int64_t> limits = {50000, 1000000000};
  int connections = 16;
  int bytes = 64;
  int repetitions = 10;
  double seconds = 1;  // of a turn
};

struct Turn {
  std::vector<absl::Duration> barriers, puts;
  double flood_per_s = 0;
};

double Mean(const std::vector<absl::Duration>& values) {
  absl::Duration sum;
  for (const absl::Duration value : values) sum += value;
  return values.empty() ? 0 : absl::ToDoubleMicroseconds(sum) / static_cast<double>(values.size());
}

absl::Status Measure(const Options& options, const std::string& protocol, int64_t limit,
                     Report& report) {
  const std::string policy = absl::StrCat(options.scratch, "/policy.json");
  std::ofstream(policy)
      << R"({"rules": [{"identity": "anonymous", "tenant": "*", "role": "operator"}]})";
  CoordinatorOptions coordinator;
  coordinator.program = options.coordinator;
  coordinator.scratch = options.scratch;
  coordinator.more_arguments = {"--access-policy", policy, "--limit",
                                absl::StrCat("max_tenant_requests_per_second=", limit)};
  COHORT_ASSIGN_OR_RETURN(const CoordinatorProcess server, StartCoordinator(coordinator));
  client::ConnectionOptions connect;
  connect.address = server.address;
  COHORT_ASSIGN_OR_RETURN(auto connection, client::Connection::Create(connect));
  const auto admin = client::AdminClient::Create(connection);
  const auto store = client::StoreClient::Create(connection, "");
  COHORT_ASSIGN_OR_RETURN(const auto group, BenchmarkGroup::Join(server.address, 8, 8));

  ChildProcessOptions flood;
  flood.command = {options.flood,
                   "--coordinator",
                   server.address,
                   "--protocol",
                   protocol,
                   "--connections",
                   absl::StrCat(options.connections),
                   "--bytes",
                   absl::StrCat(options.bytes)};
  flood.log_path = absl::StrCat(options.scratch, "/flood.log");
  COHORT_ASSIGN_OR_RETURN(const auto flooder, ChildProcess::Start(flood));

  const auto run = [&](Turn& turn) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const client::ServerStats before, admin->Stats());
    const absl::Time start = absl::Now(), end = start + absl::Seconds(options.seconds);
    int64_t own = 1;
    while (absl::Now() < end) {
      COHORT_ASSIGN_OR_RETURN(const Sample barrier, group->TimeBarrier());
      turn.barriers.push_back(barrier.latencies.front());
      const absl::Time put = absl::Now();
      COHORT_RETURN_IF_ERROR(store->Put("key", "value").status());
      turn.puts.push_back(absl::Now() - put);
      own += group->size() + 1;
    }
    COHORT_ASSIGN_OR_RETURN(const client::ServerStats after, admin->Stats());
    turn.flood_per_s = static_cast<double>(after.calls_total - before.calls_total - own) /
                       absl::ToDoubleSeconds(absl::Now() - start);
    return absl::OkStatus();
  };

  Turn quiet, flooded;
  for (int i = 0; i <= options.repetitions; ++i) {
    COHORT_RETURN_IF_ERROR(flooder->Signal(SIGSTOP));
    Turn without, with;
    COHORT_RETURN_IF_ERROR(run(without));
    COHORT_RETURN_IF_ERROR(flooder->Signal(SIGCONT));
    COHORT_RETURN_IF_ERROR(run(with));
    if (i == 0) continue;  // warm
    for (const auto& [from, to] : {std::pair(&without, &quiet), std::pair(&with, &flooded)}) {
      to->barriers.insert(to->barriers.end(), from->barriers.begin(), from->barriers.end());
      to->puts.insert(to->puts.end(), from->puts.begin(), from->puts.end());
      to->flood_per_s += from->flood_per_s / options.repetitions;
    }
  }
  const auto add = [&](const char* operation, const std::vector<absl::Duration>& without,
                       const std::vector<absl::Duration>& with) {
    Row row;
    row["section"] = "flood";
    row["protocol"] = protocol;
    row["limit"] = limit;
    row["flood_per_s"] = Rounded(flooded.flood_per_s, 0);
    row["operation"] = operation;
    row["quiet_median_us"] = Rounded(Summarise(without).median_us, 1);
    row["flooded_median_us"] = Rounded(Summarise(with).median_us, 1);
    row["median_ratio"] = Rounded(Summarise(with).median_us / Summarise(without).median_us, 3);
    row["quiet_mean_us"] = Rounded(Mean(without), 1);
    row["flooded_mean_us"] = Rounded(Mean(with), 1);
    row["mean_ratio"] = Rounded(Mean(with) / Mean(without), 3);
    report.Add(row);
  };
  add("barrier of 8", quiet.barriers, flooded.barriers);
  add("put", quiet.puts, flooded.puts);
  return absl::OkStatus();
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  Options options;
  bool json = false;
  CLI::App app("How much a tenant that floods the coordinator slows the others");
  app.add_flag("--json", json, "one JSON object per line");
  app.add_option("--coordinator", options.coordinator, "the path of cohort-coordinator")
      ->required();
  app.add_option("--flood", options.flood, "the path of tenant_flood")->required();
  app.add_option("--scratch", options.scratch, "a folder for files of the run");
  app.add_option("--protocol", options.protocols, "of the flood: framed, grpc");
  app.add_option("--limit", options.limits, "max_tenant_requests_per_second");
  app.add_option("--connections", options.connections, "of the flood");
  app.add_option("--bytes", options.bytes, "of each value that the flood writes");
  app.add_option("--repetitions", options.repetitions, "pairs of turns");
  app.add_option("--seconds", options.seconds, "of a turn");
  CLI11_PARSE(app, argc, argv);
  Report report(json);
  for (const std::string& protocol : options.protocols) {
    for (const int64_t limit : options.limits) {
      const absl::Status status = Measure(options, protocol, limit, report);
      if (!status.ok()) {
        std::fprintf(stderr, "%s\n", status.ToString().c_str());
        return 1;
      }
    }
  }
  return 0;
}
