// `cohort group`: list, show, watch, evict, close.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/event_command.h"
#include "client/cli/output/format.h"
#include "client/cli/output/table.h"
#include "client/collective/trace/path_report.h"

namespace cohort::cli {
namespace {

struct Flags {
  std::string group;
  std::string member;
  std::string reason;
  std::optional<int64_t> from_revision;
  std::optional<absl::Duration> wait;
  std::string command;  // empty: the watch runs none
  std::optional<absl::Duration> command_timeout;
};

std::string FormatMembers(const client::GroupInfo& group) {
  Table table({">RANK", "MEMBER", "STATE", "HOST", "LAST HEARD", "PROGRESS"});
  for (const client::Member& member : group.members) {
    table.AddRow({member.rank < 0 ? "" : absl::StrCat(member.rank), member.name,
                  client::MemberStateName(member.state), member.host, FormatLastHeard(member),
                  FormatProgress(member)});
  }
  return table.ToString();
}

std::string FormatGroup(const client::GroupInfo& group,
                        const std::optional<client::PathReport>& paths) {
  const std::string world_size =
      group.min_members == group.max_members
          ? absl::StrCat(group.world_size)
          : absl::StrCat(group.world_size, " (elastic, ", group.min_members, " to ",
                         group.max_members, ")");
  const std::string facts = FormatFacts({
      {"group", group.name},
      {"state", client::GroupStateName(group.state)},
      {"generation", absl::StrCat(group.generation)},
      {"world size", world_size},
      {"lease", ShortDuration(group.lease)},
      {"revision", absl::StrCat(group.revision)},
      {"holds", absl::StrCat(FormatBytes(group.bytes_held), ", ",
                             Counted(group.waiter_count, "parked call"))},
      {"cause", FormatCause(group.cause)},
      {"proposal", group.proposal.has_value() ? FormatProposal(*group.proposal) : ""},
      {"paths", paths.has_value() ? client::FormatPathReport(*paths) : ""},
      {"not shared", paths.has_value() ? absl::StrJoin(paths->why_not, "; ") : ""},
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
  Table table({"GROUP", "STATE", ">GENERATION", ">RANKS", ">PARKED", ">HELD", "CAUSE"});
  for (const client::GroupInfo& group : groups) {
    table.AddRow({group.name, client::GroupStateName(group.state), absl::StrCat(group.generation),
                  absl::StrCat(group.world_size), absl::StrCat(group.waiter_count),
                  FormatBytes(group.bytes_held), FormatCause(group.cause)});
  }
  return context.Print({{"groups", ToArray(groups)}},
                       table.empty() ? "no groups\n" : table.ToString());
}

// The paths that a group's ranks reported, if they move tensors and this generation stands.
std::optional<client::PathReport> PathsOf(Context& context, const client::GroupInfo& group) {
  const auto store = context.Store(group.name);
  if (!store.ok()) return std::nullopt;
  const auto kept = (*store)->Get({std::string(client::kPathReportKey)});
  if (!kept.ok() || kept->values.empty()) return std::nullopt;
  std::optional<client::PathReport> note = client::DecodePathReport(kept->values[0].value);
  if (!note.has_value() || note->generation != group.generation) return std::nullopt;
  return note;
}

absl::StatusOr<ExitCode> Show(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_ASSIGN_OR_RETURN(const client::GroupInfo group, admin->GetGroup(flags.group));
  const std::optional<client::PathReport> paths = PathsOf(context, group);
  Json json = ToJson(group);
  if (paths.has_value()) json["paths"] = Json::parse(client::EncodePathReport(*paths));
  return context.Print(json, FormatGroup(group, paths));
}

// The pause between two looks for a missing group.
constexpr absl::Duration kLookInterval = absl::Milliseconds(500);

// Waits for the group to exist, until `until`.
absl::StatusOr<client::GroupInfo> AwaitGroup(Context& context, client::AdminClient& admin,
                                             const std::string& name, Instant until) {
  const Environment& environment = context.environment();
  while (true) {
    absl::StatusOr<client::GroupInfo> group = admin.GetGroup(name);
    if (!absl::IsNotFound(group.status())) return group;
    const absl::Duration left = until - environment.clock->Now();
    if (left <= absl::ZeroDuration()) return group;
    environment.sleep(std::min(left, kLookInterval));
  }
}

constexpr absl::Duration kCommandTimeout = absl::Seconds(30);

// The command of --exec, and the number of its failures. An interrupt ends the command, too.
class WatchCommand {
 public:
  WatchCommand(Context& context, const Flags& flags)
      : context_(context),
        enabled_(!flags.command.empty()),
        command_(flags.command, flags.command_timeout.value_or(kCommandTimeout),
                 {absl::StrCat("COHORT_GROUP=", flags.group),
                  absl::StrCat("COHORT_COORDINATOR=", context.options().coordinator)}) {
    if (enabled_) context_.SetOnInterrupt([this] { command_.Stop(); });
  }
  ~WatchCommand() {
    if (enabled_) context_.SetOnInterrupt(nullptr);
  }
  WatchCommand(const WatchCommand&) = delete;
  WatchCommand& operator=(const WatchCommand&) = delete;

  void Run(const client::GroupEvent& event) {
    if (!enabled_) return;
    const absl::Status status = command_.Run(event);
    if (status.ok()) return;
    ++failures_;
    context_.printer().Remark(absl::StrCat("cohort: --exec at revision ", event.revision, " (",
                                           client::EventKindName(event.kind), "): ",
                                           Printable(status.message()), "; watching on"));
  }
  // The exit code of a watch that ends without an error of its own.
  ExitCode Code() const { return failures_ == 0 ? ExitCode::kOk : ExitCode::kError; }

 private:
  Context& context_;
  const bool enabled_;
  EventCommand command_;
  int64_t failures_ = 0;
};

absl::StatusOr<ExitCode> Watch(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  WatchCommand command(context, flags);
  Printer& printer = context.printer();
  const Clock& clock = *context.environment().clock;
  const Instant deadline = clock.Now() + context.TimeoutOr(absl::InfiniteDuration());
  const auto await_group = [&] {
    const Instant until = clock.Now() + flags.wait.value_or(absl::ZeroDuration());
    return AwaitGroup(context, *admin, flags.group, std::min(until, deadline));
  };
  // A watch waits while the coordinator is away. So this first request finds out whether the
  // coordinator is there at all, and the revision of "now".
  absl::StatusOr<client::GroupInfo> group = await_group();
  if (absl::IsNotFound(group.status()) && !flags.wait.has_value()) {
    printer.Remark("cohort: with --wait 5m the watch begins when the group exists");
  }
  COHORT_RETURN_IF_ERROR(group.status());
  int64_t seen = flags.from_revision.value_or(group->revision);
  int64_t incarnation = 0;
  if (flags.from_revision.has_value()) {
    COHORT_ASSIGN_OR_RETURN(const client::ServerStats stats, admin->Stats());
    incarnation = stats.server_incarnation;
  }
  const auto on_event = [&](const client::GroupEvent& event) {
    seen = event.revision;
    context.Print(ToJson(event), FormatEvent(event));
    // Meanwhile the next events wait at the coordinator.
    command.Run(event);
    // A closed group has no more events, and a closed pipe no reader.
    return printer.out_ok() && event.kind != client::EventKind::kClosed;
  };
  while (true) {
    const int64_t from = seen;
    const absl::Status status =
        admin->WatchGroup(flags.group, from, on_event, deadline - clock.Now());
    const bool gone = absl::IsNotFound(status) && flags.wait.has_value();
    if (absl::IsNotFound(status) && !gone) {
      // The coordinator keeps no events of a closed group for a watch that has not got all of them.
      printer.Remark(absl::StrCat("cohort: ", Printable(status.message()),
                                  "; events after revision ", seen, " are not known"));
      return command.Code();
    }
    if (!absl::IsOutOfRange(status) && !gone) {
      COHORT_RETURN_IF_ERROR(status);
      return command.Code();
    }
    // The coordinator kept no events over its restart. If it has not restarted, the user asked for
    // events that do not exist.
    if (flags.from_revision == seen && !gone) {
      COHORT_ASSIGN_OR_RETURN(const client::ServerStats stats, admin->Stats());
      if (stats.server_incarnation == incarnation) return status;
    }
    COHORT_ASSIGN_OR_RETURN(group, await_group());
    printer.Remark(absl::StrCat(
        "cohort: events after revision ", seen, " are not known (",
        gone ? "the group was gone" : "the coordinator restarted, or keeps it no longer",
        "); watching on from revision ", group->revision, ", generation ", group->generation, ", ",
        client::GroupStateName(group->state)));
    seen = group->revision;
  }
}

absl::StatusOr<ExitCode> Evict(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_RETURN_IF_ERROR(admin->Evict(flags.group, flags.member, flags.reason));
  return context.Print({{"group", flags.group}, {"member", flags.member}, {"evicted", true}},
                       absl::StrCat("evicted ", flags.member, " from group ", flags.group, "\n"));
}

absl::StatusOr<ExitCode> Close(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_RETURN_IF_ERROR(admin->CloseGroup(flags.group, flags.reason));
  return context.Print({{"group", flags.group}, {"closed", true}},
                       absl::StrCat("closed group ", flags.group, "\n"));
}

}  // namespace

void AddGroupCommand(CLI::App& parent, Context& context) {
  CLI::App& noun = *AddNoun(parent, "group", "Groups: their members, states and causes of failure");
  const auto flags = std::make_shared<Flags>();

  AddCommand(noun, context, "list", "All groups of the tenant",
             "cohort group list\n"
             "cohort --tenant research group list --json",
             [&context] { return List(context); });

  CLI::App* show = AddCommand(noun, context, "show", "State and members of a group",
                              "cohort group show trainer-weights",
                              [&context, flags] { return Show(context, *flags); });

  CLI::App* watch = AddCommand(
      noun, context, "watch", "Events of a group, a line each, until it closes or --timeout ends",
      "cohort group watch trainer-weights --wait 5m\n"
      "cohort group watch trainer-weights --exec 'logger \"$COHORT_EVENT: rank $COHORT_RANK\"'\n"
      "cohort group watch trainer-weights --from 17 --timeout 5m --json",
      [&context, flags] { return Watch(context, *flags); }, "for ever");
  watch
      ->add_option("--from", flags->from_revision,
                   "events after this revision (default: from now on)")
      ->check(WholeNumber(0))
      ->type_name("REVISION");

  AddDuration(*watch, "--wait", flags->wait,
              "how long to wait for the group to exist, now and when it is gone");
  watch
      ->add_option("--exec", flags->command,
                   "a command that /bin/sh runs at each event, one at a time and in order, with "
                   "COHORT_EVENT, COHORT_GROUP, COHORT_GENERATION, COHORT_REVISION, COHORT_RANK, "
                   "COHORT_MEMBER, COHORT_HOST, COHORT_CAUSE, COHORT_REASON and "
                   "COHORT_COORDINATOR in its environment. Its output goes to standard error. A "
                   "failure is reported there, the watch goes on, and exits with 1 at its end")
      ->type_name("COMMAND");
  AddDuration(*watch, "--exec-timeout", flags->command_timeout,
              "how long the command of --exec may take before it is terminated (default: 30s)");

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
  evict->add_option("--reason", flags->reason, "the reason that the other members get")->required();
  close->add_option("--reason", flags->reason, "the reason that the members get");
}

}  // namespace cohort::cli
