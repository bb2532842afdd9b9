// `cohort who-is-missing` and `cohort waits`: the open waits, and their missing ranks.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/tensor_wait_report.h"
#include "client/cli/output/format.h"
#include "client/cli/output/table.h"

namespace cohort::cli {
namespace {

// barrier "step" #812: 3 of 8 missing: ranks 3,6-7; open for 12s, 18s left
//   RANK  MEMBER  HOST  LAST HEARD  LAST OPERATION  PROGRESS
std::string FormatWait(const client::OpenWait& wait) {
  const client::MissingReport& missing = wait.missing;
  std::string text = Printable(wait.operation);
  if (missing.expected_count > 0) {
    absl::StrAppend(&text, ": ", missing.expected_count - missing.arrived_count, " of ",
                    missing.expected_count, " missing");
  }
  if (!missing.missing.empty()) {
    absl::StrAppend(&text, ": ", NameRanks(missing.missing));
  }
  absl::StrAppend(&text, "; open for ", ShortDuration(wait.age));
  if (wait.remaining != absl::InfiniteDuration()) {
    absl::StrAppend(&text, ", ", ShortDuration(wait.remaining), " left");
  }
  absl::StrAppend(&text, "\n");
  if (missing.details.empty()) return text;
  Table table({">RANK", "MEMBER", "HOST", "LAST HEARD", "LAST OPERATION", "PROGRESS"});
  for (const client::MissingMember& member : missing.details) {
    table.AddRow({absl::StrCat(member.rank), member.member.empty() ? "(empty slot)" : member.member,
                  member.host, FormatLastHeard(member),
                  FormatWithAge(member.last_operation, member.last_operation_age),
                  FormatProgress(member)});
  }
  absl::StrAppend(&text, table.ToString(2));
  const int unnamed =
      RankSet::FromRanges(missing.missing).count() - static_cast<int>(missing.details.size());
  if (unnamed > 0) absl::StrAppend(&text, "  and ", unnamed, " more\n");
  return text;
}

std::string FormatInit(const client::InitStatus& init) {
  Table table({">RANK", "MEMBER", "PHASE", "SINCE", "DETAIL"});
  for (const client::InitRank& rank : init.ranks) {
    table.AddRow(
        {absl::StrCat(rank.rank), rank.member, rank.phase, FormatAge(rank.age), rank.detail});
  }
  return absl::StrCat("communicator ", Printable(init.name), ": not ready on ",
                      Counted(static_cast<int64_t>(init.ranks.size()), "rank"), "\n",
                      table.ToString(2));
}

// After its start the coordinator learns of waits only as members ask again. A client does so at
// most 2.4 s after its last attempt (ConnectionOptions::max_backoff), and may fail to connect at
// first.
constexpr absl::Duration kSettling = absl::Seconds(5);
// The timeout for members that do not answer. Running members answer within a third of a second.
constexpr absl::Duration kReportTimeout = absl::Seconds(2);

bool Settles(const client::ServerStats& stats) { return stats.uptime < kSettling; }

std::string FormatStart(const client::ServerStats& stats) {
  return absl::StrCat("the coordinator started ", FormatAge(stats.uptime),
                      ": members may not have come back and asked again yet");
}

std::string FormatReport(const client::WhoIsMissingReport& report,
                         const client::ServerStats& stats) {
  std::string text = absl::StrCat("group ", Printable(report.group), ", generation ",
                                  report.generation, ", ", client::GroupStateName(report.state),
                                  ", ", Counted(report.world_size, "rank"), "\n");
  const std::string cause = FormatCause(report.cause);
  if (!cause.empty()) absl::StrAppend(&text, "cause: ", cause, "\n");
  if (Settles(stats)) {
    absl::StrAppend(&text, FormatStart(stats), "; ask again in ",
                    ShortDuration(kSettling - stats.uptime), "\n");
  } else if (report.waits.empty() && report.inits.empty() && report.tensor_waits.empty()) {
    absl::StrAppend(&text, KnowsAll(report) ? "no rank is missing: no wait is open\n"
                                            : "no wait is known to be open\n");
  }
  for (const client::OpenWait& wait : report.waits) {
    absl::StrAppend(&text, "\n", FormatWait(wait));
  }
  for (const client::InitStatus& init : report.inits) {
    absl::StrAppend(&text, "\n", FormatInit(init));
  }
  return text + FormatTensorWaits(report);
}

// The flag's value that stands for NCCL's address on this machine.
constexpr char kHere[] = "here";
// The timeout for NCCL's answer if no flag asks for it: NCCL waits a second for silent ranks.
constexpr absl::Duration kUnasked = absl::Seconds(3);

// NCCL on this host says:
//   communicator 0x1a, 4 ranks:
//     rank 2 (process 77 on 10.0.0.9, device 1) is dead
std::string FormatNcclRas(const NcclRasSummary& summary) {
  std::string text = "NCCL on this host says:\n";
  if (summary.communicators.empty()) absl::StrAppend(&text, "  there are no communicators\n");
  for (const NcclRasSummary::Communicator& communicator : summary.communicators) {
    absl::StrAppend(&text, "  communicator ", Printable(communicator.hash), ", ",
                    Counted(communicator.size, "rank"), ":\n");
    if (communicator.findings.empty()) {
      absl::StrAppend(&text, "    all ranks are there and have launched the same\n");
    }
    for (const std::string& finding : communicator.findings) {
      absl::StrAppend(&text, "    ", Printable(finding), "\n");
    }
  }
  if (summary.timeouts > 0) {
    absl::StrAppend(&text, "  not all answered in time: something may be missing here\n");
  }
  return text;
}

// Adds NCCL's report of this host to `json`, or after `text`. If no flag asked for it (`ras` is
// empty), no answer is not an error.
absl::Status AddNcclRas(Context& context, const std::string& ras, Json& json, std::string& text) {
  NcclRasClient* const ras_client = context.environment().nccl;
  if (ras_client == nullptr) return absl::OkStatus();
  const absl::StatusOr<NcclRasSummary> summary = ras_client->Ask(
      ras == kHere ? "" : ras, ras.empty() ? kUnasked : context.TimeoutOr(absl::Seconds(10)));
  if (summary.ok()) {
    json["nccl"] = ToJson(*summary);
    absl::StrAppend(&text, "\n", FormatNcclRas(*summary));
    return absl::OkStatus();
  }
  if (ras.empty()) return absl::OkStatus();
  if (absl::IsInvalidArgument(summary.status())) return summary.status();
  const std::string why = summary.status().ToString(absl::StatusToStringMode::kWithNoExtraData);
  json["nccl"] = {{"error", why}};
  absl::StrAppend(&text, "\nNCCL on this host says nothing: ", Printable(why), "\n");
  return absl::OkStatus();
}

absl::StatusOr<ExitCode> WhoIsMissing(Context& context, const std::string& group,
                                      const std::string& ras) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  const absl::StatusOr<client::WhoIsMissingReport> report =
      admin->WhoIsMissing(group, std::min(kReportTimeout, context.TimeoutOr(kReportTimeout)));
  if (!report.ok() && !absl::IsNotFound(report.status())) return report.status();
  // Asked after the report, so that it is not older.
  COHORT_ASSIGN_OR_RETURN(const client::ServerStats stats, admin->Stats());
  if (!report.ok()) {
    // Without a journal the group exists again when its members have come back.
    if (Settles(stats)) context.printer().Remark(absl::StrCat("cohort: ", FormatStart(stats)));
    return report.status();
  }
  Json json = ToJson(*report);
  json["settling"] = Settles(stats);
  std::string text = FormatReport(*report, stats);
  COHORT_RETURN_IF_ERROR(AddNcclRas(context, ras, json, text));
  context.Print(json, text);
  if (!report->waits.empty() || !report->inits.empty() || !report->tensor_waits.empty()) {
    return ExitCode::kMissing;
  }
  return Settles(stats) || !report->unanswered.empty() ? ExitCode::kUnavailable : ExitCode::kOk;
}

absl::StatusOr<ExitCode> Waits(Context& context, const std::string& group) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_ASSIGN_OR_RETURN(const std::vector<client::ParkedCall> calls, admin->DumpWaits(group));
  Table table({"GROUP", ">RANK", "MEMBER", "OPERATION", "SINCE", "LEFT", "WAITS ON"});
  for (const client::ParkedCall& call : calls) {
    table.AddRow({call.group.empty() ? "(tenant's store)" : call.group,
                  call.rank < 0 ? "" : absl::StrCat(call.rank), call.member, call.operation,
                  FormatAge(call.age),
                  call.remaining == absl::InfiniteDuration() ? "" : ShortDuration(call.remaining),
                  FormatRanges(call.waits_on)});
  }
  return context.Print({{"waits", ToArray(calls)}},
                       table.empty() ? "no calls are parked\n" : table.ToString());
}

}  // namespace

void AddWhoIsMissingCommand(CLI::App& parent, Context& context) {
  const auto group = std::make_shared<std::string>();
  const auto ras = std::make_shared<std::string>();
  CLI::App* const command = AddCommand(
      parent, context, "who-is-missing",
      "Every open wait of a group and its missing ranks: waits at the coordinator, and operations "
      "on tensors, for which it asks the members now. Exits with 3 when there is one, and with 5 "
      "when none is known but a member does not answer, or the coordinator has just started",
      "cohort who-is-missing trainer-weights\n"
      "until cohort who-is-missing trainer-weights; do sleep 5; done",
      [&context, group, ras] { return WhoIsMissing(context, *group, *ras); });
  command->add_option("GROUP", *group, "name of the group")->required();
  if (context.environment().nccl == nullptr) return;
  command->add_flag(absl::StrCat("--nccl-ras{", kHere, "}"), *ras,
                    "also the report of NCCL's own threads, or why it is missing, such as "
                    "--nccl-ras=localhost:28028; without an address $NCCL_RAS_ADDR, or else that. "
                    "Without the flag the report is shown if NCCL answers");
}

void AddWaitsCommand(CLI::App& parent, Context& context) {
  const auto group = std::make_shared<std::string>();
  AddCommand(parent, context, "waits",
             "All parked calls: the caller, the wait, its age, and the missing ranks",
             "cohort waits\n"
             "cohort waits trainer-weights --json",
             [&context, group] { return Waits(context, *group); })
      ->add_option("GROUP", *group,
                   "name of the group (default: all of the tenant, and its store)");
}

}  // namespace cohort::cli
