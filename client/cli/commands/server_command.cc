// `cohort server` and `cohort limits`: totals and limits of the coordinator.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/format.h"
#include "client/cli/output/table.h"

namespace cohort::cli {
namespace {

absl::StatusOr<ExitCode> Server(Context& context) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_ASSIGN_OR_RETURN(const client::ServerStats stats, admin->Stats());
  std::string text = FormatFacts({
      {"coordinator", context.options().coordinator},
      {"version", stats.version},
      {"incarnation", absl::StrCat(stats.server_incarnation)},
      {"state", stats.draining ? "draining" : "serving"},
      {"up for", ShortDuration(stats.uptime)},
      {"journal", stats.journal},
      {"groups", absl::StrCat(stats.group_count)},
      {"members", absl::StrCat(stats.member_count)},
      {"parked calls", absl::StrCat(stats.waiter_count)},
      {"held", FormatBytes(stats.bytes_held)},
      {"calls", absl::StrCat(stats.calls_total)},
  });
  if (!stats.memory.empty()) {
    Table table({"MEMORY", ">BYTES"});
    for (const auto& [kind, bytes] : stats.memory) {
      if (bytes != 0) table.AddRow({kind, absl::StrCat(bytes)});
    }
    table.AddRow({"all", absl::StrCat(stats.charged_bytes)});
    table.AddRow({"max_bytes_held", absl::StrCat(stats.max_bytes_held)});
    absl::StrAppend(&text, "\n", table.ToString());
  }
  if (!stats.tenants.empty()) {
    Table table({"TENANT", ">BYTES", ">GROUPS", ">MEMBERS", ">PARKED CALLS", ">STREAMS"});
    for (const client::TenantUse& use : stats.tenants) {
      table.AddRow({use.tenant, absl::StrCat(use.bytes), absl::StrCat(use.group_count),
                    absl::StrCat(use.member_count), absl::StrCat(use.waiter_count),
                    absl::StrCat(use.stream_count)});
    }
    absl::StrAppend(&text, "\n", table.ToString());
    const int64_t others = stats.tenant_count - static_cast<int64_t>(stats.tenants.size());
    if (others > 0) absl::StrAppend(&text, "tenants with fewer bytes: ", others, "\n");
  }
  return context.Print(ToJson(stats), text);
}

absl::StatusOr<std::map<std::string, int64_t>> ParseLimits(
    const std::vector<std::string>& settings) {
  std::map<std::string, int64_t> limits;
  for (const std::string& setting : settings) {
    const std::vector<std::string> parts = absl::StrSplit(setting, absl::MaxSplits('=', 1));
    int64_t value = 0;
    if (parts.size() != 2 || parts[0].empty() || !absl::SimpleAtoi(parts[1], &value)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", setting, "' is no NAME=VALUE with a whole number"));
    }
    limits[parts[0]] = value;
  }
  return limits;
}

absl::StatusOr<ExitCode> Limits(Context& context, const std::vector<std::string>& settings) {
  COHORT_ASSIGN_OR_RETURN(const auto set, ParseLimits(settings));
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_ASSIGN_OR_RETURN(const auto limits, admin->Limits(set));
  Table table({"LIMIT", ">VALUE"});
  for (const auto& [name, value] : limits) table.AddRow({name, absl::StrCat(value)});
  return context.Print({{"limits", limits}}, table.ToString());
}

}  // namespace

void AddServerCommand(CLI::App& parent, Context& context) {
  AddCommand(
      parent, context, "server",
      "Totals of the coordinator, and the memory that callers made it keep, by kind and by tenant",
      "cohort server\n"
      "cohort server --coordinator 10.0.0.7:7700 --json",
      [&context] { return Server(context); });
}

void AddLimitsCommand(CLI::App& parent, Context& context) {
  const auto settings = std::make_shared<std::vector<std::string>>();
  AddCommand(parent, context, "limits",
             "The limits in force; those given are set until the coordinator's next start",
             "cohort limits\n"
             "cohort limits max_inline_bytes=2097152",
             [&context, settings] { return Limits(context, *settings); })
      ->add_option("SETTING", *settings, "NAME=VALUE of a limit to set");
}

}  // namespace cohort::cli
