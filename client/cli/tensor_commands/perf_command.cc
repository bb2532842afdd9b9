#include "client/cli/tensor_commands/perf_command.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "client/cli/output/format.h"
#include "client/cli/output/progress_line.h"
#include "client/cli/tensor_commands/perf_table.h"
#include "client/cli/tensor_commands/rank_processes.h"
#include "client/cli/tensor_commands/tensor_group_membership.h"
#include "client/perf/cases.h"
#include "client/perf/measure.h"

namespace cohort::cli {
namespace {

constexpr absl::Duration kDefaultTimeout = absl::Seconds(60);
constexpr char kMembers[] = "--members";

struct Flags {
  GroupFlags group;
  int members = 0;
  std::vector<std::string> operations;
  std::string sizes;
  std::string min_bytes = "1K";
  std::string max_bytes = "16M";
  int factor = 4;
  std::string type = "f32";
  std::string reduction = "sum";
  int root = 0;
  std::string memory = "registered";
  std::string device = "host";
  perf::MeasureOptions measure;
};

// --- The cases to measure.

absl::StatusOr<std::vector<int64_t>> Sizes(const Flags& flags) {
  if (flags.sizes.empty()) {
    COHORT_ASSIGN_OR_RETURN(const int64_t min, perf::ParseSize(flags.min_bytes));
    COHORT_ASSIGN_OR_RETURN(const int64_t max, perf::ParseSize(flags.max_bytes));
    return perf::SizeRange(min, max, flags.factor);
  }
  std::vector<int64_t> sizes;
  for (absl::string_view text : absl::StrSplit(flags.sizes, ',')) {
    COHORT_ASSIGN_OR_RETURN(const int64_t size, perf::ParseSize(text));
    sizes.push_back(size);
  }
  return sizes;
}

absl::StatusOr<std::vector<Collective>> Operations(const Flags& flags, int ranks) {
  std::vector<Collective> operations;
  for (const std::string& name : flags.operations) {
    const std::optional<Collective> operation = perf::FindOperation(name);
    if (!operation.has_value()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "no operation ", name, "; there are ",
          absl::StrJoin(perf::kOperations, ", ", [](std::string* out, Collective known) {
            absl::StrAppend(out, perf::OperationName(known));
          })));
    }
    operations.push_back(*operation);
  }
  if (!operations.empty()) return operations;
  // A rank alone has no peer to send to.
  for (const Collective operation : perf::kOperations) {
    if (ranks > 1 || operation != Collective::kExchange) operations.push_back(operation);
  }
  return operations;
}

absl::StatusOr<std::vector<perf::Case>> Cases(const Flags& flags, int ranks) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<Collective> operations, Operations(flags, ranks));
  COHORT_ASSIGN_OR_RETURN(const std::vector<int64_t> sizes, Sizes(flags));
  const std::optional<DataType> type = FindDataType(flags.type);
  if (!type.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no type ", flags.type, "; there are ",
                     absl::StrJoin(kDataTypes, ", ", [](std::string* out, DataType known) {
                       absl::StrAppend(out, NameOf(known));
                     })));
  }
  const std::optional<ReduceOp> op = FindReduceOp(flags.reduction);
  if (!op.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("no reduction ", flags.reduction, "; there are ",
                     absl::StrJoin(kReduceOps, ", ", [](std::string* out, ReduceOp known) {
                       absl::StrAppend(out, NameOf(known));
                     })));
  }
  if (flags.root >= ranks) {
    return absl::InvalidArgumentError(
        absl::StrCat("--root ", flags.root, ": ranks are 0..", ranks - 1));
  }
  // One half of a small whole number is exact.
  const Reduction reduction = {*op, *op == ReduceOp::kPreMulSum ? 0.5 : 1};
  std::vector<perf::Case> cases;
  for (const Collective operation : operations) {
    if (Reduces(operation)) COHORT_RETURN_IF_ERROR(CheckReducible(*type, *op));
    if (operation == Collective::kExchange && ranks == 1) {
      return absl::InvalidArgumentError("sendrecv needs two ranks");
    }
    for (const int64_t size : sizes) {
      cases.push_back(perf::MakeCase(operation, size, *type, reduction, flags.root, ranks));
    }
  }
  return cases;
}

// "host", "cuda" or "cuda:1".
absl::StatusOr<std::optional<int>> Gpu(const Flags& flags) {
  absl::string_view text = flags.device;
  int number = kGpuOfRank;
  if (text == "host") return std::nullopt;
  if (!absl::ConsumePrefix(&text, "cuda") ||
      (!text.empty() &&
       (!absl::ConsumePrefix(&text, ":") || !absl::SimpleAtoi(text, &number) || number < 0))) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device ", flags.device, ": there are host, cuda and cuda:N"));
  }
  if (flags.memory == "plain") {
    return absl::InvalidArgumentError("--memory plain is of the host: it does not go with a GPU");
  }
  return number;
}

// --- One rank.

// The options that must be the same on ranks that were started one by one.
std::string Describe(const Flags& flags, const std::vector<perf::Case>& cases) {
  std::string text = absl::StrCat("warmup ", flags.measure.warmup, ", iterations ",
                                  flags.measure.iterations, ", check ", flags.measure.checks);
  for (const perf::Case& run : cases) {
    absl::StrAppend(&text, ", ", perf::OperationName(run.operation), " of ", run.count, " ",
                    NameOf(run.type));
    if (Reduces(run.operation)) absl::StrAppend(&text, " by ", NameOf(run.reduction.op));
    if (HasRoot(run.operation)) absl::StrAppend(&text, " root ", run.root);
  }
  return text;
}

absl::Status CheckAlike(client::Group& group, const std::string& own) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> all, group.AllGatherObjects(own));
  const std::vector<std::string> first = absl::StrSplit(all[0], ", ");
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const std::vector<std::string> other = absl::StrSplit(all[rank], ", ");
    size_t at = 0;
    while (at < first.size() && at < other.size() && first[at] == other[at]) ++at;
    const auto said = [at](const std::vector<std::string>& words) {
      return at < words.size() ? words[at] : std::string("nothing more");
    };
    return absl::InvalidArgumentError(absl::StrCat("the ranks have different options: rank 0 ",
                                                   said(first), ", rank ", rank, " ", said(other)));
  }
  return absl::OkStatus();
}

std::string MemoryOf(const Flags& flags) {
  return flags.group.gpu.has_value() ? "gpu" : flags.memory;
}

void PrintHeader(Context& context, const Flags& flags, client::Group& group) {
  const std::string memory =
      flags.group.gpu.has_value()
          ? absl::StrCat("memory of GPUs, rank 0's of ", group.device().ToString())
          : absl::StrCat(flags.memory, " memory");
  context.printer().PrintText(absl::StrCat(
      "# group ", group.name(), ", ", Counted(group.size(), "rank"), ", form ", flags.group.form,
      ", ", memory, "; time: median of about ten batches, slowest rank; bandwidth: GB/s\n",
      PerfTitles()));
}

absl::StatusOr<ExitCode> RunRank(Context& context, const Flags& flags) {
  perf::MeasureOptions measure = flags.measure;
  if (flags.group.gpu.has_value()) {
    measure.copy = [groups = context.environment().groups](const Tensor& from, const Tensor& to) {
      return groups->Copy(from, to);
    };
  }
  COHORT_ASSIGN_OR_RETURN(const std::vector<perf::Case> cases,
                          Cases(flags, flags.group.world_size));
  COHORT_ASSIGN_OR_RETURN(
      auto membership,
      TensorGroupMembership::Join(context, flags.group, context.TimeoutOr(kDefaultTimeout)));
  client::Group& group = membership->group();
  COHORT_RETURN_IF_ERROR(CheckAlike(group, Describe(flags, cases)));
  const bool prints = group.rank() == 0;
  if (prints && !context.json()) PrintHeader(context, flags, group);
  ProgressLine progress(context.printer());
  int64_t wrong = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    if (prints) {
      progress.Show(absl::StrCat("measuring ", perf::OperationName(cases[i].operation), " of ",
                                 FormatBytes(cases[i].bytes()), " (", i + 1, " of ", cases.size(),
                                 ")"));
    }
    COHORT_ASSIGN_OR_RETURN(const perf::Row row,
                            perf::Measure(group, cases[i], measure, *context.environment().clock));
    wrong += WrongOf(row);
    if (!prints) continue;
    progress.Clear();
    context.Print(PerfJson(row, group.size(), MemoryOf(flags)), PerfLine(row, group.size()));
  }
  // A rank that leaves ends the calls of ranks that are not done. The coordinator answers all ranks
  // at once, so that none is in a call when the first leaves.
  COHORT_RETURN_IF_ERROR(group.AllGatherObjects("").status());
  if (prints && !context.json()) {
    context.printer().PrintText(
        flags.measure.checks == 0
            ? "# nothing was checked\n"
            : absl::StrCat("# ",
                           wrong == 0 ? "all results are right"
                                      : absl::StrCat(Counted(wrong, "wrong element")),
                           "\n"));
  }
  return wrong == 0 ? ExitCode::kOk : ExitCode::kError;
}

// --- All ranks, each a process.

std::string ChanceName() {
  std::random_device chance;
  return absl::StrFormat("perf-%08x%08x", chance(), chance());
}

// The command line of one rank: this one's, without the options that start ranks.
std::vector<std::string> RankArguments(const Context& context, const Flags& flags, int rank) {
  std::vector<std::string> arguments;
  const std::vector<std::string>& own = context.arguments();
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i] == kMembers) {
      ++i;  // and its value
    } else if (!absl::StartsWith(own[i], absl::StrCat(kMembers, "="))) {
      arguments.push_back(own[i]);
    }
  }
  for (const std::string& word : {std::string("--rank"), absl::StrCat(rank),
                                  std::string("--world-size"), absl::StrCat(flags.members)}) {
    arguments.push_back(word);
  }
  if (flags.group.group.empty()) {
    static const std::string* const name = new std::string(ChanceName());
    arguments.insert(arguments.end(), {"--group", *name});
  }
  return arguments;
}

std::string Describe(const RankFailure& failure) {
  const std::string how = failure.signal != 0
                              ? absl::StrCat("was killed by signal ", failure.signal, " (",
                                             strsignal(failure.signal), ")")
                              : absl::StrCat("ended with status ", failure.exit_code);
  const std::string words =
      failure.words.empty() ? "" : absl::StrCat(": ", Printable(failure.words));
  return absl::StrCat("rank ", failure.rank, " (process ", failure.pid, ") ", how, words);
}

// Checks that each rank has a GPU of its own.
absl::Status CheckGpus(Context& context, const Flags& flags) {
  if (!flags.group.gpu.has_value()) return absl::OkStatus();
  COHORT_ASSIGN_OR_RETURN(const int gpus, context.environment().groups->CountGpus());
  const bool by_rank = *flags.group.gpu == kGpuOfRank;
  const int shared_from = by_rank ? gpus : 1;
  if (flags.members <= shared_from) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "ranks 0 and ", shared_from, " would share cuda:", by_rank ? 0 : *flags.group.gpu,
      ", which NCCL refuses: there ", gpus == 1 ? "is 1 GPU" : absl::StrCat("are ", gpus, " GPUs"),
      by_rank ? "" : ", and --device cuda takes one for each rank"));
}

absl::StatusOr<ExitCode> StartRanks(Context& context, const Flags& flags) {
  GroupFlags first = flags.group;
  first.world_size = flags.members;
  first.rank = 0;
  if (first.group.empty()) first.group = "any";
  COHORT_RETURN_IF_ERROR(CheckGroupFlags(first));
  COHORT_RETURN_IF_ERROR(Cases(flags, flags.members).status());
  COHORT_RETURN_IF_ERROR(CheckGpus(context, flags));
  std::vector<std::vector<std::string>> arguments;
  for (int rank = 0; rank < flags.members; ++rank) {
    arguments.push_back(RankArguments(context, flags, rank));
  }
  COHORT_ASSIGN_OR_RETURN(const auto ranks, RankProcesses::Start(arguments));
  context.SetOnInterrupt([&ranks] { ranks->Stop(); });
  const std::optional<RankFailure> failure = ranks->Wait();
  context.SetOnInterrupt(nullptr);
  if (!failure.has_value()) return ExitCode::kOk;
  // Rank 0 has already printed its own errors.
  if (failure->rank != 0 || failure->signal != 0) {
    context.printer().Remark(absl::StrCat("cohort: ", Describe(*failure)));
  }
  return failure->signal != 0 ? ExitCode::kAborted : static_cast<ExitCode>(failure->exit_code);
}

absl::StatusOr<ExitCode> Perf(Context& context, Flags& flags) {
  flags.measure.registered = flags.memory == "registered";
  COHORT_ASSIGN_OR_RETURN(flags.group.gpu, Gpu(flags));
  if (flags.members == 0) return RunRank(context, flags);
  if (flags.group.rank >= 0 || flags.group.world_size > 0) {
    return absl::InvalidArgumentError(
        "--members starts all ranks: it does not go with --rank and --world-size");
  }
  return StartRanks(context, flags);
}

void AddWork(CLI::App& command, Flags& flags) {
  command.add_option("OPERATION", flags.operations,
                     "all_reduce, reduce, broadcast, all_gather, reduce_scatter, all_to_all, "
                     "gather, scatter, sendrecv (default: all)");
  command.add_option("--sizes", flags.sizes, "sizes in bytes, such as 8,64K,1M");
  command.add_option("--min-bytes", flags.min_bytes, "the smallest size (default: 1K)");
  command.add_option("--max-bytes", flags.max_bytes, "the largest (default: 16M)");
  command.add_option("--factor", flags.factor, "from one size to the next (default: 4)")
      ->check(WholeNumber(2));
  command.add_option("--type", flags.type, "of the elements, such as bf16 (default: f32)");
  command.add_option("--reduction", flags.reduction,
                     "sum, prod, min, max, avg, pre_mul_sum, bit_and, ... (default: sum)");
  command.add_option("--root", flags.root, "of operations that have one (default: 0)")
      ->check(WholeNumber(0));
  command
      .add_option("--memory", flags.memory,
                  "registered, tensors of the group; or plain, of this process alone (default: "
                  "registered)")
      ->check(CLI::IsMember({"registered", "plain"}));
  command.add_option("--device", flags.device,
                     "where the tensors lie: host; cuda:N, this process's GPU N; or cuda, the GPU "
                     "of the rank's number, modulo how many there are (default: host)");
}

}  // namespace

void AddPerfCommand(CLI::App& parent, Context& context) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = AddCommand(
      parent, context, "perf",
      "Measure how fast a group moves tensors, and check the results. Sizes, times and bandwidths "
      "are as in nccl-tests; the exit status is 1 if anything was wrong. --timeout (default 60s) "
      "is for forming the group, and for each call",
      "cohort perf --members 4\n"
      "cohort perf all_reduce --members 2 --sizes 8,64K,1M --type bf16 --json\n"
      "cohort perf --members 2 --device cuda                 # each rank on a GPU of its own\n"
      "cohort perf --group ring --rank 0 --world-size 2      # and rank 1 on another host",
      [&context, flags] { return Perf(context, *flags); }, "60s");
  AddGroupFlags(*command, flags->group);
  command
      ->add_option(kMembers, flags->members,
                   "start so many ranks on this machine, each a process, in place of being one")
      ->check(WholeNumber(1));
  AddWork(*command, *flags);
  perf::MeasureOptions& measure = flags->measure;
  command
      ->add_option("--iterations", measure.iterations,
                   "timed calls of each row (default: as many as take 50 ms)")
      ->check(WholeNumber(1));
  command->add_option("--warmup", measure.warmup, "calls before them (default: 5)")
      ->check(WholeNumber(1));
  command
      ->add_option("--check", measure.checks,
                   "calls whose results are compared with the expected values (default: 1)")
      ->check(WholeNumber(0));
}

}  // namespace cohort::cli
