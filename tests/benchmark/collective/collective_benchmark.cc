// The collective benchmark: Cohort, other libraries and the limit of the memory in one run, one
// process per rank.
//
//   tests/benchmark/run.sh collective                         # the whole table, two members
//   tests/benchmark/run.sh collective --members 4 --json
//   tests/benchmark/run.sh collective --operation all_reduce --sizes 65536 1M
//   tests/benchmark/run.sh collective --separate-hosts   # over a network of this machine's own
//   tests/benchmark/run.sh collective --background   # call by call, with other work on the machine
//
// Why the comparison is fair:
//   * All members of all implementations live as long as the run, and sleep in a read while others
//     are measured. Rounds of short bursts go from one to the next, so that drift hits all alike.
//   * All do the same work (work.h): fp32, sums, into memory other than the inputs'. Buffers are
//     reused, and all their pages have been written. Each result is verified before it is timed.
//   * A burst runs the operation once or a few times without the clock, then the implementation's
//     own barrier, then N operations in a row, which each rank times. Its result is the slowest
//     rank's time over N. N is the same for all ranks: a burst takes about 25 ms, but N is at
//     least three.
//   * The other libraries show their best: Open MPI with the default and several other settings
//     (openmpi_implementation.cc), Gloo with all its algorithms and modes of waiting
//     (gloo_implementation.cc). The row names the best variant.
//   * The limit is measured, too (limit_member.cc): the most that this machine's memory allows now.
#include <sched.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/benchmark/collective/background_load.h"
#include "tests/benchmark/collective/comparison.h"
#include "tests/benchmark/collective/implementations.h"
#include "tests/benchmark/collective/processes/stop_signal.h"
#include "tests/benchmark/collective/table.h"
#include "tests/failure/testing/host_network.h"

namespace cohort::benchmark {
namespace {

struct Flags {
  bool json = false;
  bool quick = false;
  bool separate_hosts = false;
  bool background = false;
  int64_t deadline_s = 20;
  std::vector<std::string> operations;
  std::vector<int64_t> sizes = {8, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 64 << 20};
  ImplementationOptions implementations;
  BackgroundOptions background_options;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_flag("--json", flags.json, "one JSON object per line");
  app.add_flag("--quick", flags.quick, "fewer and shorter rounds");
  app.add_flag("--separate-hosts", flags.separate_hosts,
               "each rank on a host of its own: a network namespace of this machine, on a switch; "
               "of those that use sockets: cohort-tcp, cohort-tcp-tls and gloo-best");
  app.add_flag(
      "--background", flags.background,
      "call by call, each implementation's best variant on the idle machine, with a process that "
      "takes a share of one processor, and with another group of two ranks; small sizes "
      "and all_reduce and broadcast unless said otherwise");
  app.add_option("--load", flags.background_options.share,
                 "with --background: the share that the process takes")
      ->check(CLI::Range(0.01, 1.0));
  app.add_option("--seed", flags.background_options.seed,
                 "with --background: seed of the lengths of its time slices");
  app.add_option("--members", flags.implementations.members, "how many ranks")
      ->check(CLI::Range(2, 64));
  app.add_option("--sizes", flags.sizes, "in bytes; 64K and 1M are understood")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 28));
  app.add_option("--operation", flags.operations,
                 "only these: all_reduce, reduce_scatter, broadcast, all_gather, all_to_all, "
                 "sendrecv");
  app.add_option("--implementation", flags.implementations.names,
                 "only these: cohort, cohort-attached, cohort-daemon, cohort-tcp, cohort-tcp-tls, "
                 "grpc, openmpi, openmpi-best, gloo-best, limit, and with --python: cohort-numpy, "
                 "cohort-torch, torch-gloo");
  app.add_option("--deadline", flags.deadline_s, "seconds that a burst may take")
      ->check(CLI::Range(1, 3600));
  app.add_option("--programs", flags.implementations.programs,
                 "the folder of the members' programs")
      ->required();
  app.add_option("--mpirun", flags.implementations.mpirun, "the path of mpirun")->required();
  app.add_option("--coordinator", flags.implementations.coordinator,
                 "the path of cohort-coordinator")
      ->required();
  app.add_option("--worker", flags.implementations.worker, "the path of cohort-worker")->required();
  app.add_option("--certificates", flags.implementations.certificates,
                 "a folder of deploy/certificates.sh with a name `rank`, for cohort-tcp-tls");
  app.add_option("--python", flags.implementations.python,
                 "an interpreter with numpy and PyTorch, for the implementations in Python");
  app.add_option("--python-member", flags.implementations.python_member,
                 "the path of members/python/member.py");
  app.add_option("--python-package", flags.implementations.python_package,
                 "the folder that holds the package cohort");
  app.add_option("--scratch", flags.implementations.scratch, "a folder for logs and sockets")
      ->required();
  app.add_option("--memory-scratch", flags.implementations.memory_scratch,
                 "a folder in memory for the shared files of Open MPI");
}

int CoreCount() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof(allowed), &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

std::vector<Collective> WantedCollectives(const std::vector<std::string>& names) {
  std::vector<Collective> wanted;
  for (Collective collective : AllCollectives()) {
    if (names.empty() ||
        std::find(names.begin(), names.end(), CollectiveName(collective)) != names.end()) {
      wanted.push_back(collective);
    }
  }
  return wanted;
}

ComparisonOptions OptionsFor(bool quick) {
  ComparisonOptions options;
  if (quick) {
    options.burst = absl::Milliseconds(15);
    options.rounds = 5;
    options.budget = absl::Milliseconds(300);
  }
  return options;
}

// Returns the exit status.
int RunAllWithBackground(Flags flags) {
  if (flags.operations.empty()) flags.operations = {"all_reduce", "broadcast"};
  if (flags.implementations.names.empty()) {
    flags.implementations.names = {"cohort", "cohort-attached", "openmpi", "gloo-best"};
  }
  flags.background_options.load = flags.implementations.programs + "/processor_load";
  flags.background_options.implementations = flags.implementations;
  if (flags.quick) {
    flags.background_options.rounds = 2;
    flags.background_options.slice = absl::Milliseconds(50);
  }
  const auto background = Background::Start(flags.background_options);
  if (!background.ok()) {
    std::fprintf(stderr, "%s\n", background.status().ToString().c_str());
    return 1;
  }
  Implementations implementations = MakeImplementations(flags.implementations);
  int failures = 0;
  for (Collective collective : WantedCollectives(flags.operations)) {
    for (int64_t bytes : flags.sizes) {
      // The best variant of each implementation on the idle machine.
      const std::vector<Result> best =
          RunComparison(OptionsFor(/*quick=*/true), collective, bytes, implementations.variants);
      failures += MeasureWithBackground(flags.background_options, **background, collective, bytes,
                                        best, implementations.variants, flags.json);
      if (StopSignal() != 0) return 128 + StopSignal();
    }
  }
  return failures == 0 ? 0 : 1;
}

// Returns the exit status.
int RunAll(Flags flags) {
  std::unique_ptr<testing::HostNetwork> hosts;
  if (flags.separate_hosts) {
    auto made = testing::HostNetwork::Create(flags.implementations.members);
    if (!made.ok()) {
      std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
      return 1;
    }
    hosts = *std::move(made);
    flags.implementations.hosts = hosts.get();
    if (flags.implementations.names.empty()) {
      flags.implementations.names = {"cohort-tcp", "cohort-tcp-tls", "gloo-best"};
    }
  }
  if (flags.background) return RunAllWithBackground(std::move(flags));
  Implementations implementations = MakeImplementations(flags.implementations);
  Table table(flags.json, flags.implementations.members);
  for (Collective collective : WantedCollectives(flags.operations)) {
    for (int64_t bytes : flags.sizes) {
      const std::vector<Result> results =
          RunComparison(OptionsFor(flags.quick), collective, bytes, implementations.variants);
      if (StopSignal() != 0) return 128 + StopSignal();
      table.Add(collective, bytes, results);
    }
  }
  return table.failures() == 0 ? 0 : 1;
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  Flags flags;
  CLI::App app("The collective benchmark");
  AddFlags(app, flags);
  CLI11_PARSE(app, argc, argv);
  if (flags.background && app.count("--sizes") == 0) flags.sizes = {8, 1 << 10, 4 << 10, 64 << 10};
  for (const std::string& name : flags.operations) {
    if (!ParseCollective(name).ok()) {
      std::fprintf(stderr, "no operation \"%s\"\n", name.c_str());
      return 2;
    }
  }
  flags.implementations.cores = CoreCount();
  flags.implementations.deadline = absl::Seconds(flags.deadline_s);
  CatchStopSignals();
  return RunAll(flags);
}
