#include "client/cli/group_command.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/cli/format.h"
#include "client/cli/table.h"

namespace cohort::cli {
namespace {

struct Flags {
  std::string group;
  std::string member;
  std::string reason;
  std::optional<int64_t> from_revision;
};

std::string Progress(const client::Member& member) {
  if (member.progress == 0 && member.progress_operation.empty()) return "";
  std::string result = absl::StrCat(member.progress);
  if (!member.progress_operation.empty()) {
    absl::StrAppend(&result, " in ", member.progress_operation);
  }
  absl::StrAppend(&result, " (", FormatAge(member.progress_age), ")");
  return result;
}

std::string FormatMembers(const client::GroupInfo& group) {
  Table table({">RANK", "MEMBER", "STATE", "HOST", "LAST HEARD", "PROGRESS"});
  for (const client::Member& member : group.members) {
    table.AddRow({member.rank < 0 ? "" : absl::StrCat(member.rank), member.name,
                  client::MemberStateName(member.state), member.host, FormatAge(member.last_heard),
                  Progress(member)});
  }
  return table.ToString();
}

std::string FormatGroup(const client::GroupInfo& group) {
  const std::string seats = group.min_members == group.max_members
                                ? absl::StrCat(group.world_size)
                                : absl::StrCat(group.world_size, " (elastic, ", group.min_members,
                                               " to ", group.max_members, ")");
  const std::string facts = FormatFacts({
      {"group", group.name},
      {"state", client::GroupStateName(group.state)},
      {"generation", absl::StrCat(group.generation)},
      {"world size", seats},
      {"lease", ShortDuration(group.lease)},
      {"revision", absl::StrCat(group.revision)},
      {"holds", absl::StrCat(FormatBytes(group.bytes_held), ", ",
                             Counted(group.waiter_count, "parked call"))},
      {"cause", FormatCause(group.cause)},
      {"proposal", group.proposal.has_value() ? FormatProposal(*group.proposal) : ""},
  });
  return absl::StrCat(facts, "\n", FormatMembers(group));
}

// "rev 12  generation 3  lost  rank 3 (rank-3): lease_expired, ..."
std::string FormatEvent(const client::GroupEvent& event) {
  std::string line = absl::StrCat("rev ", event.revision, "  generation ", event.generation, "  ",
                                  client::EventKindName(event.kind));
  const std::string member = FormatMember(event.rank, event.member, "");
  if (!member.empty()) absl::StrAppend(&line, "  ", member);
  const std::string cause = FormatCause(event.cause);
  if (!cause.empty()) absl::StrAppend(&line, "  cause: ", cause);
  if (event.proposal.has_value()) {
    absl::StrAppend(&line, "  proposal ", FormatProposal(*event.proposal));
  }
  return line + "\n";
}

absl::StatusOr<ExitCode> List(Context& context) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_ASSIGN_OR_RETURN(const std::vector<client::GroupInfo> groups, admin->ListGroups());
  if (context.json()) {
    Json json = Json::array();
    for (const client::GroupInfo& group : groups) json.push_back(ToJson(group));
    context.printer().PrintJson({{"groups", std::move(json)}});
    return ExitCode::kOk;
  }
  Table table({"GROUP", "STATE", ">GENERATION", ">RANKS", ">PARKED", ">HELD", "CAUSE"});
  for (const client::GroupInfo& group : groups) {
    table.AddRow({group.name, client::GroupStateName(group.state), absl::StrCat(group.generation),
                  absl::StrCat(group.world_size), absl::StrCat(group.waiter_count),
                  FormatBytes(group.bytes_held), FormatCause(group.cause)});
  }
  context.printer().PrintText(table.empty() ? "no groups\n" : table.ToString());
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Show(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_ASSIGN_OR_RETURN(const client::GroupInfo group, admin->GetGroup(flags.group));
  if (context.json()) {
    context.printer().PrintJson(ToJson(group));
  } else {
    context.printer().PrintText(FormatGroup(group));
  }
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Watch(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  // A watch waits out a coordinator that is away; that it is there to begin with is found out here,
  // and so is from where on "now" is.
  COHORT_ASSIGN_OR_RETURN(const client::GroupInfo group, admin->GetGroup(flags.group));
  const int64_t from_revision = flags.from_revision.value_or(group.revision);
  Printer& printer = context.printer();
  const auto on_event = [&](const client::GroupEvent& event) {
    if (context.json()) {
      printer.PrintJson(ToJson(event));
    } else {
      printer.PrintText(FormatEvent(event));
    }
    // Nothing comes after the end of a group, and nothing is read after the end of a pipe.
    return printer.out_ok() && event.kind != client::EventKind::kClosed;
  };
  COHORT_RETURN_IF_ERROR(admin->WatchGroup(flags.group, from_revision, on_event,
                                           context.TimeoutOr(absl::InfiniteDuration())));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Evict(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_RETURN_IF_ERROR(admin->Evict(flags.group, flags.member, flags.reason));
  if (context.json()) {
    context.printer().PrintJson(
        {{"group", flags.group}, {"member", flags.member}, {"evicted", true}});
  } else {
    context.printer().PrintText(
        absl::StrCat("evicted ", flags.member, " from group ", flags.group, "\n"));
  }
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Close(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_RETURN_IF_ERROR(admin->CloseGroup(flags.group, flags.reason));
  if (context.json()) {
    context.printer().PrintJson({{"group", flags.group}, {"closed", true}});
  } else {
    context.printer().PrintText(absl::StrCat("closed group ", flags.group, "\n"));
  }
  return ExitCode::kOk;
}

}  // namespace

void AddGroupCommand(CLI::App& parent, Context& context) {
  CLI::App& noun = *AddNoun(parent, "group", "Groups: who is in, and what became of them");
  const auto flags = std::make_shared<Flags>();

  AddCommand(noun, context, "list", "All groups of the tenant",
             "cohort group list\n"
             "cohort --tenant research group list --json",
             [&context] { return List(context); });

  CLI::App* show = AddCommand(noun, context, "show", "State and members of a group",
                              "cohort group show trainer-weights",
                              [&context, flags] { return Show(context, *flags); });

  CLI::App* watch = AddCommand(noun, context, "watch",
                               "Events of a group, a line each, until it closes or --timeout ends",
                               "cohort group watch trainer-weights\n"
                               "cohort group watch trainer-weights --from 17 --timeout 5m --json",
                               [&context, flags] { return Watch(context, *flags); });
  watch
      ->add_option("--from", flags->from_revision,
                   "events after this revision (default: from now on)")
      ->check(CLI::NonNegativeNumber)
      ->type_name("REVISION");

  CLI::App* evict = AddCommand(noun, context, "evict", "Declare a member lost",
                               "cohort group evict trainer-weights rank-3 --reason 'host is dead'",
                               [&context, flags] { return Evict(context, *flags); });

  CLI::App* close = AddCommand(noun, context, "close", "End a group for all of its members",
                               "cohort group close trainer-weights --reason 'job is over'",
                               [&context, flags] { return Close(context, *flags); });

  for (CLI::App* command : {show, watch, evict, close}) {
    command->add_option("GROUP", flags->group, "name of the group")->required();
  }
  evict->add_option("MEMBER", flags->member, "name of the member")->required();
  evict->add_option("--reason", flags->reason, "what the other members are told")->required();
  close->add_option("--reason", flags->reason, "what the members are told");
}

}  // namespace cohort::cli
