// Compares the cost of communication patterns with hand-written code: tests/benchmark/run.sh
// patterns. The driver starts a coordinator and this program again for each rank.

#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "tests/benchmark/harness/child_process.h"
#include "tests/benchmark/harness/coordinator_process.h"
#include "tests/benchmark/harness/report.h"
#include "tests/benchmark/patterns/comparison.h"
#include "tests/benchmark/patterns/comparisons.h"
#include "worker/group/local_group.h"

namespace cohort::benchmark {
namespace {

constexpr absl::Duration kCall = absl::Minutes(2);
constexpr absl::Duration kRun = absl::Minutes(20);

struct Flags {
  std::string coordinator;  // of the driver: the program; of a rank: the address
  std::string scratch = "/tmp";
  std::string memory_scratch;  // in memory, if there is such a folder
  std::vector<std::string> patterns = {"tensor_map", "queue", "moe", "pipeline"};
  bool json = false;
  bool quick = false;
  int rank = -1;
  int size = 0;
};

// How many ranks each pattern is measured with.
std::vector<int> SizesOf(const std::string& pattern) {
  if (pattern == "queue") return {2, 8};
  if (pattern == "moe") return {2, 4};
  return {2};
}

absl::StatusOr<std::vector<Comparison>> ComparisonsOf(const std::string& pattern,
                                                      client::Group& group,
                                                      const std::string& scratch) {
  if (pattern == "tensor_map") return TensorMapComparisons(group);
  if (pattern == "queue") return QueueComparisons(group, scratch);
  if (pattern == "moe") return MoeComparisons(group);
  if (pattern == "pipeline") return PipelineComparisons(group);
  return absl::InvalidArgumentError(absl::StrCat("no pattern \"", pattern, "\""));
}

absl::Status RunRank(const Flags& flags) {
  worker::LocalGroupOptions rank_options;
  rank_options.membership.connection.address = flags.coordinator;
  rank_options.membership.group = absl::StrCat("patterns-", flags.patterns[0], "-", flags.size);
  rank_options.membership.rank = flags.rank;
  rank_options.membership.world_size = flags.size;
  rank_options.timeout = kCall;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<client::Group> group,
                          worker::LocalGroup::Create(rank_options));
  ComparisonOptions options;
  if (flags.quick) {
    options.rounds = 5;
    options.time = absl::Milliseconds(20);
  }
  const std::string scratch = flags.memory_scratch.empty() ? flags.scratch : flags.memory_scratch;
  COHORT_ASSIGN_OR_RETURN(std::vector<Comparison> comparisons,
                          ComparisonsOf(flags.patterns[0], *group, scratch));
  Report report(flags.json);
  for (const Comparison& comparison : comparisons) {
    COHORT_ASSIGN_OR_RETURN(const std::vector<Row> rows, Run(*group, comparison, options));
    if (flags.rank != 0) continue;
    for (const Row& row : rows) report.Add(row);
  }
  comparisons.clear();
  // No rank leaves while another one still measures.
  return group->ExchangeSizes(0).status();
}

absl::Status RunPattern(const Flags& flags, const std::string& program, const std::string& pattern,
                        int size, const std::string& coordinator) {
  std::vector<std::unique_ptr<ChildProcess>> ranks;
  for (int rank = size - 1; rank >= 0; --rank) {
    ChildProcessOptions child;
    child.command = {
        program,         "--rank",           absl::StrCat(rank),  "--size", absl::StrCat(size),
        "--coordinator", coordinator,        "--pattern",         pattern,  "--scratch",
        flags.scratch,   "--memory-scratch", flags.memory_scratch};
    if (flags.json) child.command.push_back("--json");
    if (flags.quick) child.command.push_back("--quick");
    child.log_path = absl::StrCat(flags.scratch, "/", pattern, "-", size, "-", rank, ".log");
    child.pipes = rank == 0;
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> started, ChildProcess::Start(child));
    ranks.push_back(std::move(started));
  }
  // Rank 0 prints.
  for (absl::StatusOr<std::string> line = ranks.back()->ReadLine(); line.ok();
       line = ranks.back()->ReadLine()) {
    std::cout << *line << std::endl;
  }
  for (const std::unique_ptr<ChildProcess>& rank : ranks) {
    COHORT_ASSIGN_OR_RETURN(const ExitStatus status, rank->Wait(kRun));
    if (status.code != 0) {
      return absl::InternalError(
          absl::StrCat("a rank of ", pattern, " with ", size, " members ended with ", status.code));
    }
  }
  return absl::OkStatus();
}

absl::Status Drive(const Flags& flags, const std::string& program) {
  CoordinatorOptions options;
  options.program = flags.coordinator;
  options.scratch = flags.scratch;
  COHORT_ASSIGN_OR_RETURN(const CoordinatorProcess coordinator, StartCoordinator(options));
  for (const std::string& pattern : flags.patterns) {
    for (const int size : SizesOf(pattern)) {
      COHORT_RETURN_IF_ERROR(RunPattern(flags, program, pattern, size, coordinator.address));
    }
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  Flags flags;
  CLI::App app("Compares communication patterns with hand-written code.");
  app.add_option("--coordinator", flags.coordinator, "The coordinator's program")->required();
  app.add_option("--scratch", flags.scratch, "A folder for logs");
  app.add_option("--memory-scratch", flags.memory_scratch, "A folder in memory");
  app.add_option("--pattern", flags.patterns, "tensor_map, queue, moe, pipeline");
  app.add_flag("--json", flags.json, "One JSON object per line");
  app.add_flag("--quick", flags.quick, "Less time, more noise");
  app.add_option("--rank", flags.rank)->group("");
  app.add_option("--size", flags.size)->group("");
  CLI11_PARSE(app, argc, argv);
  const absl::Status status = flags.rank >= 0 ? RunRank(flags) : Drive(flags, argv[0]);
  if (status.ok()) return 0;
  std::cerr << (flags.rank >= 0 ? absl::StrCat("rank ", flags.rank, ": ") : std::string())
            << status.ToString() << std::endl;
  return 1;
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) { return cohort::benchmark::Main(argc, argv); }
