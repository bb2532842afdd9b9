// `cohort worker`: the ranks of a worker daemon, and their last calls.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/format.h"
#include "client/cli/output/table.h"
#include "client/collective/remote/worker_client.h"
#include "client/collective/trace/chrome_trace.h"

namespace cohort::cli {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr size_t kShownWaits = 3;

struct Flags {
  std::string address = "127.0.0.1:7800";
  std::vector<std::string> addresses;
  std::string group;
  std::string output;
};

Json ToJson(const client::WorkerInfo& info) {
  Json ranks = Json::array();
  for (const client::WorkerRank& rank : info.ranks) {
    Json json = {{"group", rank.group},       {"generation", rank.generation},
                 {"rank", rank.rank},         {"world_size", rank.world_size},
                 {"client", rank.client},     {"client_pid", rank.client_pid},
                 {"attached", rank.attached}, {"paths", rank.paths}};
    if (!rank.ended.empty()) json["ended"] = rank.ended;
    for (const client::RankWait& wait : rank.waits) {
      json["waits"].push_back({{"rank", wait.rank}, {"seconds", absl::ToDoubleSeconds(wait.time)}});
    }
    ranks.push_back(std::move(json));
  }
  return {{"version", info.version},
          {"pid", info.pid},
          {"host", info.host},
          {"uptime_seconds", absl::ToDoubleSeconds(info.uptime)},
          {"coordinator", info.coordinator},
          {"draining", info.draining},
          {"session_count", info.session_count},
          {"tensor_count", info.tensor_count},
          {"tensor_bytes", info.tensor_bytes},
          {"ranks", std::move(ranks)}};
}

// Such as: rank 3 12.4s, rank 1 200ms.
std::string FormatWaits(const client::WorkerRank& rank) {
  std::string text;
  for (size_t i = 0; i < std::min(rank.waits.size(), kShownWaits); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", "rank ", rank.waits[i].rank, " ",
                    ShortDuration(rank.waits[i].time));
  }
  return text;
}

absl::StatusOr<ExitCode> Show(Context& context, const Flags& flags) {
  const auto worker =
      context.environment().clients->Worker(flags.address, context.TimeoutOr(kTimeout));
  COHORT_ASSIGN_OR_RETURN(const client::WorkerInfo info, worker->Describe());
  std::string text = FormatFacts({
      {"worker", flags.address},
      {"version", info.version},
      {"process", absl::StrCat(info.pid, " on ", info.host)},
      {"state", info.draining ? "draining" : "serving"},
      {"up for", ShortDuration(info.uptime)},
      {"coordinator", info.coordinator},
      {"sessions", absl::StrCat(info.session_count)},
      {"tensors", absl::StrCat(info.tensor_count, ", ", FormatBytes(info.tensor_bytes))},
  });
  Table table(
      {"GROUP", ">RANK", ">OF", ">GENERATION", "CLIENT", "COLLECTIVES RUN", "WAITED FOR", "ENDED"});
  for (const client::WorkerRank& rank : info.ranks) {
    table.AddRow({rank.group, absl::StrCat(rank.rank), absl::StrCat(rank.world_size),
                  absl::StrCat(rank.generation), absl::StrCat(rank.client, " ", rank.client_pid),
                  rank.attached ? "in the client" : "here", FormatWaits(rank), rank.ended});
  }
  if (!table.empty()) absl::StrAppend(&text, "\n", table.ToString());
  return context.Print(ToJson(info), text);
}

absl::StatusOr<ExitCode> Trace(Context& context, const Flags& flags) {
  std::vector<client::FlightRecord> records;
  for (const std::string& address : flags.addresses) {
    const auto worker = context.environment().clients->Worker(address, context.TimeoutOr(kTimeout));
    COHORT_ASSIGN_OR_RETURN(std::vector<client::FlightRecord> read,
                            worker->ReadFlightRecords(flags.group));
    for (client::FlightRecord& record : read) records.push_back(std::move(record));
  }
  const std::string trace = client::ChromeTrace(records, absl::Now());
  if (flags.output.empty()) {
    context.printer().PrintText(trace + "\n");
    return ExitCode::kOk;
  }
  COHORT_RETURN_IF_ERROR(WriteFile(flags.output, trace));
  size_t calls = 0;
  for (const client::FlightRecord& record : records) calls += record.calls.size();
  context.printer().Remark(
      absl::StrCat("cohort: ", flags.output, ": ", calls, " calls of ", records.size(), " ranks"));
  return ExitCode::kOk;
}

}  // namespace

void AddWorkerCommand(CLI::App& parent, Context& context) {
  CLI::App& noun =
      *AddNoun(parent, "worker", "Worker daemons: their ranks, and the calls of these ranks");
  const auto flags = std::make_shared<Flags>();
  AddCommand(noun, context, "show", "A worker, and the ranks that live in it",
             "cohort worker show unix:/run/cohort/worker.sock\n"
             "cohort worker show 10.0.0.9:7800 --json",
             [&context, flags] { return Show(context, *flags); })
      ->add_option("ADDRESS", flags->address, "of the worker (default: 127.0.0.1:7800)");
  CLI::App* trace = AddCommand(
      noun, context, "trace",
      "The last calls of ranks, those that run included, as a trace for chrome://tracing or "
      "Perfetto",
      "cohort worker trace 10.0.0.9:7800 10.0.0.10:7800 --group weights --output trace.json",
      [&context, flags] { return Trace(context, *flags); });
  trace->add_option("ADDRESS", flags->addresses, "of workers")->required();
  trace->add_option("--group", flags->group, "only this group (default: all)");
  trace->add_option("--output", flags->output, "a file (default: standard output)");
}

}  // namespace cohort::cli
