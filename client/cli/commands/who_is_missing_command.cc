// `cohort who-is-missing` and `cohort waits`: the open waits, and their missing ranks.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/rank_set.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/tensor_wait_report.h"
#include "client/cli/commands/wait_filter.h"
#include "client/cli/context/error_report.h"
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

struct Flags {
  std::string group;
  std::string ras;
  std::string rank;
  std::optional<absl::Duration> older_than;
  bool probe = false;
};

bool IsEmpty(const client::WhoIsMissingReport& report) {
  return report.waits.empty() && report.inits.empty() && report.tensor_waits.empty();
}

std::string FormatNoWait(const WaitFilter& filter, bool knows_all) {
  if (knows_all && !filter.is_set()) return "no rank is missing: no wait is open\n";
  return filter.NoWait(knows_all) + "\n";
}

std::string FormatReport(const client::WhoIsMissingReport& report, const WaitFilter& filter,
                         const client::ServerStats& stats) {
  std::string text = absl::StrCat("group ", Printable(report.group), ", generation ",
                                  report.generation, ", ", client::GroupStateName(report.state),
                                  ", ", Counted(report.world_size, "rank"), "\n");
  const std::string cause = FormatCause(report.cause);
  if (!cause.empty()) absl::StrAppend(&text, "cause: ", cause, "\n");
  if (Settles(stats)) {
    absl::StrAppend(&text, FormatStart(stats), "; ask again in ",
                    ShortDuration(kSettling - stats.uptime), "\n");
  } else if (IsEmpty(report)) {
    absl::StrAppend(&text, FormatNoWait(filter, KnowsAll(report)));
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

// The value of --rank that stands for this process' rank.
constexpr char kSelf[] = "self";

absl::StatusOr<WaitFilter> MakeFilter(Context& context, const Flags& flags) {
  WaitFilter filter;
  filter.older_than = flags.older_than;
  if (flags.rank.empty()) return filter;
  const bool is_self = flags.rank == kSelf;
  const std::string& text = is_self ? context.environment().rank : flags.rank;
  int rank = -1;
  if (!absl::SimpleAtoi(text, &rank) || rank < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--rank ", flags.rank, ": expected a rank", is_self ? " in $COHORT_RANK" : " or 'self'",
        ", got '", text, "'"));
  }
  filter.rank = rank;
  return filter;
}

// A client with a role in one tenant may not ask for them. It gets those of a coordinator that has
// always run.
absl::StatusOr<client::ServerStats> StatsOf(client::AdminClient& admin) {
  absl::StatusOr<client::ServerStats> stats = admin.Stats();
  if (!absl::IsPermissionDenied(stats.status())) return stats;
  client::ServerStats unknown;
  unknown.uptime = absl::InfiniteDuration();
  return unknown;
}

// Prints the open waits of one group.
absl::StatusOr<ExitCode> ReportGroup(Context& context, client::AdminClient& admin,
                                     const std::string& group, const Flags& flags,
                                     const WaitFilter& filter) {
  absl::StatusOr<client::WhoIsMissingReport> report =
      admin.WhoIsMissing(group, std::min(kReportTimeout, context.TimeoutOr(kReportTimeout)));
  if (!report.ok() && !absl::IsNotFound(report.status())) return report.status();
  // Asked after the report, so that it is not older.
  COHORT_ASSIGN_OR_RETURN(const client::ServerStats stats, StatsOf(admin));
  if (!report.ok()) {
    // Without a journal the group exists again when its members have come back.
    if (Settles(stats)) context.printer().Remark(absl::StrCat("cohort: ", FormatStart(stats)));
    return report.status();
  }
  filter.Apply(*report);
  Json json = ToJson(*report);
  json["settling"] = Settles(stats);
  std::string text = FormatReport(*report, filter, stats);
  // A probe asks the coordinator alone, unless a flag says otherwise: NCCL may take seconds.
  if (!flags.probe || !flags.ras.empty()) {
    COHORT_RETURN_IF_ERROR(AddNcclRas(context, flags.ras, json, text));
  }
  context.Print(json, text);
  if (!IsEmpty(*report)) return ExitCode::kMissing;
  // The ranks that wait for a silent member report it. So silence alone is no wait.
  const bool is_silent = !filter.is_set() && !report->unanswered.empty();
  return Settles(stats) || is_silent ? ExitCode::kUnavailable : ExitCode::kOk;
}

// The name of the flags is that of a group, or ends with an asterisk: all groups that begin so.
absl::StatusOr<ExitCode> WhoIsMissing(Context& context, const Flags& flags,
                                      const WaitFilter& filter) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  if (!absl::EndsWith(flags.group, "*")) {
    return ReportGroup(context, *admin, flags.group, flags, filter);
  }
  const absl::string_view prefix = absl::StripSuffix(flags.group, "*");
  COHORT_ASSIGN_OR_RETURN(const std::vector<client::GroupInfo> groups, admin->ListGroups());
  absl::StatusOr<ExitCode> result =
      absl::NotFoundError(absl::StrCat("no group's name begins with ", prefix));
  for (const client::GroupInfo& group : groups) {
    if (!absl::StartsWith(group.name, prefix)) continue;
    const absl::StatusOr<ExitCode> code =
        ReportGroup(context, *admin, group.name, flags, filter);
    if (absl::IsNotFound(code.status())) continue;  // it has closed meanwhile
    if (!code.ok()) return code;
    // An open wait outweighs groups of which not all is known.
    if (!result.ok() || *code == ExitCode::kMissing || *result == ExitCode::kOk) result = code;
  }
  return result;
}

// As WhoIsMissing, but only an open wait and a wrong command line are failures.
absl::StatusOr<ExitCode> Probe(Context& context, const Flags& flags, const WaitFilter& filter) {
  const absl::StatusOr<ExitCode> code = WhoIsMissing(context, flags, filter);
  if (code.ok()) return *code == ExitCode::kMissing ? ExitCode::kMissing : ExitCode::kOk;
  if (absl::IsInvalidArgument(code.status())) return code.status();
  context.printer().Remark(absl::StrCat(
      "cohort: ", ErrorLine(code.status(),
                            context.environment().clients->GetErrorInfo(code.status()), {}),
      "; the probe does not fail for this"));
  return ExitCode::kOk;
}

// PyTorch's TCPStore clients form no group. Their waits are in a tenant of the coordinator's port.
void RemarkTcpStoreWaits(Context& context) {
  const std::string& address = context.options().coordinator;
  const size_t colon = address.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port)) return;
  client::ConnectionOptions options = context.ConnectionOptions();
  options.tenant = absl::StrCat("tcpstore-", port);
  Clients& clients = *context.environment().clients;
  const auto connection = clients.Connect(options);
  if (!connection.ok()) return;
  const auto calls = clients.Admin(*connection, context.TimeoutOr(absl::Seconds(2)))->DumpWaits("");
  if (!calls.ok() || calls->empty()) return;
  context.printer().Remark(absl::StrCat(
      "cohort: PyTorch's TCPStore clients of port ", port, " have ",
      Counted(static_cast<int64_t>(calls->size()), "open wait"), ": see 'cohort waits --tenant ",
      options.tenant, "'"));
}

absl::StatusOr<ExitCode> RunWhoIsMissing(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(const WaitFilter filter, MakeFilter(context, flags));
  if (flags.probe) return Probe(context, flags, filter);
  const absl::StatusOr<ExitCode> code = WhoIsMissing(context, flags, filter);
  const bool finds_nothing = code.ok() ? *code == ExitCode::kOk : absl::IsNotFound(code.status());
  if (finds_nothing) RemarkTcpStoreWaits(context);
  return code;
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
  const auto flags = std::make_shared<Flags>();
  CLI::App* const command = AddCommand(
      parent, context, "who-is-missing",
      "Every open wait of a group and its missing ranks: waits at the coordinator, and operations "
      "on tensors, for which it asks the members now. Exits with 3 when there is one, and with 5 "
      "when none is known but a member does not answer, or the coordinator has just started",
      "cohort who-is-missing trainer-weights\n"
      "cohort who-is-missing trainer-weights --older-than 30s\n"
      "cohort who-is-missing trainer-weights --probe --rank self --older-than 2m\n"
      "until cohort who-is-missing trainer-weights; do sleep 5; done",
      [&context, flags] { return RunWhoIsMissing(context, *flags); });
  command
      ->add_option("GROUP", flags->group,
                   "name of the group; 'torch-0-*' is each group whose name begins with torch-0-")
      ->required();
  AddDuration(*command, "--older-than", flags->older_than,
              "only waits that have been open for this long; exit code 5 is then about the "
              "coordinator alone");
  command
      ->add_option("--rank", flags->rank,
                   "only waits that this rank holds up; 'self' is the rank in $COHORT_RANK")
      ->type_name("RANK");
  command->add_flag("--probe", flags->probe,
                    "for Kubernetes: exit with 0 instead of 4 and 5, so that a probe fails for an "
                    "open wait alone");
  if (context.environment().nccl == nullptr) return;
  command->add_flag(absl::StrCat("--nccl-ras{", kHere, "}"), flags->ras,
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
