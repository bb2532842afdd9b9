// A rank under test, in a process of its own: several of them share one GPU.
//
//   rank_program --backend device --probe
//     says whether there is a GPU with an NCCL; exits with 3 without a GPU
//   rank_program --backend host|device --coordinator ADDRESS --group NAME --rank R --ranks N
//
// Prints `joined RANK RANKS GENERATION`, or `failed CODE TEXT` and ends. Then runs commands, one in
// each line, and prints `CODE TEXT` for each:
//
//   table SEED [CELLS]     runs all collectives, or so many of them, and verifies each result:
//                          `OK N cells, digest D`, the same on all ranks
//   sum                    runs one all_reduce, and verifies its result
//   disagree WHAT          the last rank calls another collective, op, type, count or root
//   loop COUNT [TIMES]     repeats an all_reduce of COUNT i32 until one fails; prints `running`
//                          after a few. The process stops itself (SIGSTOP) after TIMES calls
//   ras                    asks NCCL's RAS threads: `OK N communicators, N ranks, N missing`, and
//                          findings
//   rejoin                 forms the next generation: `OK RANK RANKS GENERATION`
//   replay                 replays recorded calls, and compares their results with those of the
//                          calls: `OK digest D`, the same on all ranks
//   leave                  ends the program
//
// Ends with its standard input, with the process that started it, and after --limit-s in any case.
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/ras/ras_client.h"
#include "worker/group/testing/rank_program/backend.h"
#include "worker/group/testing/rank_program/collective_table.h"
#include "worker/group/testing/rank_program/joined_rank.h"

namespace cohort::testing {
namespace {

constexpr int kNoDevice = 3;
constexpr int kIterationsToRun = 3;
constexpr absl::Duration kRasTimeout = absl::Seconds(10);
constexpr int64_t kMostCount = int64_t{1} << 24;  // in a loop

// The standard output that the program was started with. NCCL writes a line of its own to standard
// output, which is therefore standard error.
int answers = STDOUT_FILENO;

void Answer(const std::string& line) { dprintf(answers, "%s\n", line.c_str()); }

struct Options {
  std::string backend = "host";
  bool probe = false;
  JoinedRankOptions join;
  std::string ras;          // the address of NCCL's RAS threads; empty: RAS is off
  int deadline_ms = 60000;  // of a call
  int limit_s = 300;
};

// Runs the commands.
class Commands {
 public:
  Commands(Backend& backend, JoinedRank& rank, const Options& options)
      : backend_(backend),
        rank_(rank),
        ras_(options.ras),
        deadline_(absl::Milliseconds(options.deadline_ms)) {}

  // Runs one command. Returns the text of its answer.
  absl::StatusOr<std::string> Follow(const std::vector<std::string>& words) {
    if (words[0] == "rejoin") {
      COHORT_RETURN_IF_ERROR(rank_.Rejoin());
      return Position();
    }
    if (!rank_.has_communicator()) return absl::FailedPreconditionError("the last rejoin failed");
    if (words[0] == "table") return RunTable(words);
    if (words[0] == "sum") return Sum();
    if (words[0] == "replay") return Replay();
    if (words[0] == "disagree" && words.size() == 2) return Disagree(words[1]);
    if (words[0] == "ras") return AskRas();
    if (words[0] == "loop") return Loop(words);
    return absl::InvalidArgumentError("no such command");
  }

  std::string Position() {
    return absl::StrCat(rank_.communicator().rank(), " ", rank_.communicator().size(), " ",
                        rank_.membership().generation());
  }

 private:
  absl::StatusOr<std::string> RunTable(const std::vector<std::string>& words) {
    uint32_t seed = 0;
    size_t cells = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &seed) ||
        (words.size() > 2 && !absl::SimpleAtoi(words[2], &cells))) {
      return absl::InvalidArgumentError("table SEED [CELLS]");
    }
    const int ranks = rank_.communicator().size();
    std::vector<Cell> table = MakeTable(seed, ranks, [this, ranks](DataType type, ReduceOp op) {
      return backend_.Reduces(type, op, ranks);
    });
    if (cells > 0 && cells < table.size()) table.resize(cells);
    TableRun run(backend_, rank_.communicator(), seed, deadline_);
    for (const Cell& cell : table) COHORT_RETURN_IF_ERROR(run.Run(cell));
    return absl::StrCat(table.size(), " cells, digest ", absl::Hex(run.digest()));
  }

  absl::StatusOr<std::string> Sum() {
    Cell cell;
    cell.operation.collective = Collective::kAllReduce;
    cell.operation.type = DataType::kF32;
    cell.operation.count = 12345;
    TableRun run(backend_, rank_.communicator(), 1, deadline_);
    COHORT_RETURN_IF_ERROR(run.Run(cell));
    return absl::StrCat("digest ", absl::Hex(run.digest()));
  }

  absl::StatusOr<std::string> Replay() {
    constexpr int64_t kCount = 4099;
    constexpr int kTimes = 5;
    COHORT_ASSIGN_OR_RETURN(char* const input, Memory(kCount));
    COHORT_ASSIGN_OR_RETURN(char* const output, Memory(kCount));
    const Instant deadline = Clock::Steady().Now() + deadline_;
    constexpr size_t kBytes = static_cast<size_t>(kCount) * sizeof(float);
    std::string values(kBytes, '\0');
    for (int64_t i = 0; i < kCount; ++i) {
      const float value =
          0.1f * static_cast<float>(i % 97) + static_cast<float>(rank_.communicator().rank());
      std::memcpy(&values[static_cast<size_t>(i) * sizeof(float)], &value, sizeof(float));
    }
    COHORT_RETURN_IF_ERROR(backend_.Write(values, input, deadline));
    const auto calls = [&](worker::Communicator& communicator) -> absl::Status {
      COHORT_RETURN_IF_ERROR(communicator.AllReduce(input, output, kCount, DataType::kF32,
                                                    {ReduceOp::kSum}, deadline));
      COHORT_RETURN_IF_ERROR(communicator.AllReduce(output, output, kCount, DataType::kF32,
                                                    {ReduceOp::kMax}, deadline));
      return communicator.Broadcast(output, output, kCount, DataType::kF32, 0, deadline);
    };
    COHORT_RETURN_IF_ERROR(calls(rank_.communicator()));
    COHORT_ASSIGN_OR_RETURN(const std::string called, backend_.Read(output, kBytes, deadline));
    COHORT_RETURN_IF_ERROR(backend_.Write(std::string(kBytes, '\0'), output, deadline));
    COHORT_RETURN_IF_ERROR(backend_.RunRecorded(rank_.communicator(), 3, calls, kTimes, deadline));
    COHORT_ASSIGN_OR_RETURN(const std::string replayed, backend_.Read(output, kBytes, deadline));
    if (replayed != called) return absl::DataLossError("replayed calls have other results");
    uint64_t digest = 1469598103934665603u;
    for (const char byte : called) digest = (digest ^ static_cast<uint8_t>(byte)) * 1099511628211u;
    return absl::StrCat("digest ", absl::Hex(digest));
  }

  absl::StatusOr<std::string> Disagree(const std::string& what) {
    COHORT_ASSIGN_OR_RETURN(char* const memory, Memory(1000));
    worker::Communicator& communicator = rank_.communicator();
    const bool differs = communicator.rank() == communicator.size() - 1;
    const Instant deadline = Clock::Steady().Now() + deadline_;
    if (what == "root") {
      COHORT_RETURN_IF_ERROR(
          communicator.Broadcast(memory, memory, 100, DataType::kF32, differs ? 1 : 0, deadline));
      return std::string("no error");
    }
    if (what == "collective" && differs) {
      COHORT_RETURN_IF_ERROR(communicator.Barrier(deadline));
      return std::string("no error");
    }
    const DataType type = what == "type" && differs ? DataType::kI32 : DataType::kF32;
    const ReduceOp op = what == "op" && differs ? ReduceOp::kMax : ReduceOp::kSum;
    const int64_t count = what == "count" && differs ? 101 : 100;
    COHORT_RETURN_IF_ERROR(communicator.AllReduce(memory, memory, count, type, {op}, deadline));
    return std::string("no error");
  }

  absl::StatusOr<std::string> Loop(const std::vector<std::string>& words) {
    int64_t count = 0;
    int64_t stops_before = -1;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &count) || count < 0 ||
        count > kMostCount || (words.size() > 2 && !absl::SimpleAtoi(words[2], &stops_before))) {
      return absl::InvalidArgumentError("loop COUNT [TIMES]");
    }
    COHORT_ASSIGN_OR_RETURN(char* const memory, Memory(count));
    for (int64_t iteration = 0;; ++iteration) {
      if (iteration == stops_before) std::raise(SIGSTOP);
      COHORT_RETURN_IF_ERROR(rank_.communicator().AllReduce(memory, memory, count, DataType::kI32,
                                                            {ReduceOp::kMax},
                                                            Clock::Steady().Now() + deadline_));
      if (iteration == kIterationsToRun) Answer("running");
    }
  }

  absl::StatusOr<std::string> AskRas() const {
    COHORT_ASSIGN_OR_RETURN(
        const worker::NcclRasReport report,
        worker::AskNcclRas({ras_}, Clock::Steady().Now() + std::min(deadline_, kRasTimeout)));
    size_t ranks = 0;
    size_t missing = 0;
    std::string findings;
    for (const worker::NcclRasCommunicator& communicator : report.communicators) {
      ranks += communicator.ranks.size();
      missing += communicator.missing.size();
      for (const std::string& finding : worker::FindingsOf(communicator)) {
        absl::StrAppend(&findings, "; ", finding);
      }
    }
    return absl::StrCat(report.communicators.size(), " communicators, ", ranks, " ranks, ", missing,
                        " missing", findings);
  }

  // Allocates `count` zeros of i32.
  absl::StatusOr<char*> Memory(int64_t count) {
    const std::string zeros(static_cast<size_t>(count) * sizeof(int32_t), '\0');
    COHORT_ASSIGN_OR_RETURN(char* const memory,
                            backend_.Allocate(std::max<size_t>(zeros.size(), 1)));
    COHORT_RETURN_IF_ERROR(backend_.Write(zeros, memory, Clock::Steady().Now() + deadline_));
    return memory;
  }

  Backend& backend_;
  JoinedRank& rank_;
  const std::string ras_;
  const absl::Duration deadline_;
};

absl::StatusOr<std::unique_ptr<Backend>> MakeBackend(const Options& options) {
  if (options.backend == "host") return MakeHostBackend();
  return MakeDeviceBackend(options.join.rank, options.ras);
}

void Say(const std::string& before, const absl::Status& status, const std::string& text = "") {
  Answer(absl::StrCat(before, absl::StatusCodeToString(status.code()), " ",
                      status.ok() ? absl::string_view(text) : status.message()));
}

int Run(const Options& options) {
  const absl::StatusOr<std::unique_ptr<Backend>> backend = MakeBackend(options);
  if (!backend.ok()) {
    Say("failed ", backend.status());
    return CheckForDevice().ok() ? 1 : kNoDevice;
  }
  if (options.probe) {
    Say("", absl::OkStatus(), options.backend);
    return 0;
  }
  const absl::StatusOr<std::unique_ptr<JoinedRank>> rank =
      JoinedRank::Join(**backend, options.join);
  if (!rank.ok()) {
    Say("failed ", rank.status());
    return 1;
  }
  Commands commands(**backend, **rank, options);
  Answer(absl::StrCat("joined ", commands.Position()));
  std::string line;
  while (std::getline(std::cin, line) && line != "leave") {
    const absl::StatusOr<std::string> said = commands.Follow(absl::StrSplit(line, ' '));
    Say("", said.status(), said.value_or(""));
  }
  return 0;
}

int Main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Options options;
  CLI::App app("A rank under test, in a process of its own.");
  app.add_option("--backend", options.backend)->check(CLI::IsMember({"host", "device"}));
  app.add_flag("--probe", options.probe);
  app.add_option("--coordinator", options.join.coordinator);
  app.add_option("--group", options.join.group);
  app.add_option("--rank", options.join.rank);
  app.add_option("--ranks", options.join.ranks);
  app.add_option("--ras", options.ras);
  app.add_option("--deadline-ms", options.deadline_ms);
  app.add_option("--limit-s", options.limit_s);
  CLI11_PARSE(app, argc, argv);
  // The ranks create their contexts on one device one after the other.
  options.join.join_window = absl::Seconds(options.backend == "host" ? 3 : 10);
  // Work that hangs on a device never ends: SIGALRM ends the process.
  alarm(static_cast<unsigned>(options.limit_s));
  answers = dup(STDOUT_FILENO);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  const int status = Run(options);
  // Skips the destructors of static objects: NCCL's remaining threads may still use them.
  _exit(status);
}

}  // namespace
}  // namespace cohort::testing

int main(int argc, char** argv) { return cohort::testing::Main(argc, argv); }
