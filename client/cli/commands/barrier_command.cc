// `cohort barrier`: takes part in one barrier as a rank.
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/context/group_membership.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

struct Flags {
  MembershipFlags membership;
  std::string name;
};

absl::StatusOr<ExitCode> Barrier(Context& context, const Flags& flags) {
  const Clock& clock = *context.environment().clock;
  const Instant started = clock.Now();
  COHORT_ASSIGN_OR_RETURN(
      auto membership,
      GroupMembership::Join(context, flags.membership, context.TimeoutOr(absl::Seconds(30))));
  const absl::Duration join = clock.Now() - started;
  const std::string title = flags.name.empty() ? "barrier" : absl::StrCat("barrier ", flags.name);
  const int64_t generation = membership->group().generation();
  const int world_size = membership->group().world_size();
  client::RoundReport report;
  const absl::Status status =
      membership->group().Barrier(membership->RoundOptions(flags.name, title), &report);
  if (absl::IsDeadlineExceeded(status) && !report.missing.missing.empty()) {
    context.set_missing(report.missing);
  }
  COHORT_RETURN_IF_ERROR(membership->Release(status));

  return context.Print({{"group", flags.membership.group},
                        {"generation", generation},
                        {"rank", flags.membership.rank},
                        {"world_size", world_size},
                        {"name", flags.name},
                        {"number", report.number},
                        {"join_seconds", Seconds(join)},
                        {"skew_seconds", Seconds(report.skew)}},
                       absl::StrCat(title, " #", report.number, ": ", Counted(world_size, "rank"),
                                    " arrived, skew ", ShortDuration(report.skew), " (after ",
                                    ShortDuration(join), " until all had joined)\n"));
}

}  // namespace

void AddBarrierCommand(CLI::App& parent, Context& context) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command = AddCommand(
      parent, context, "barrier",
      "Join a group as a rank, wait in a barrier, leave; --timeout (default 30s) is for all of it",
      "cohort barrier nightly --rank 0 --world-size 2 &\n"
      "cohort barrier nightly --rank 1 --world-size 2 --timeout 5m",
      [&context, flags] { return Barrier(context, *flags); }, "30s");
  AddMembershipFlags(*command, flags->membership);
  command->add_option("--name", flags->name, "name of the barrier (default: the unnamed one)");
}

}  // namespace cohort::cli
