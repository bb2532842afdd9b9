// `cohort drain`: no new groups, for as long as the coordinator is being replaced.
#include <memory>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/cli/commands/commands.h"
#include "client/cli/output/format.h"

namespace cohort::cli {
namespace {

struct Flags {
  bool now = false;
  bool resume = false;
};

absl::StatusOr<ExitCode> Drain(Context& context, const Flags& flags) {
  COHORT_ASSIGN_OR_RETURN(auto admin, context.Admin());
  COHORT_ASSIGN_OR_RETURN(const client::DrainResult result, admin->Drain(flags.now, flags.resume));
  std::string text =
      flags.resume ? "taking groups and joins again" : "draining: new groups and joins are refused";
  if (flags.now) {
    absl::StrAppend(&text, "; released ", Counted(result.released_count, "parked call"));
  }
  absl::StrAppend(&text, "; ", Counted(result.group_count, "group"), ", ",
                  Counted(result.waiter_count, "parked call"), "\n");
  return context.Print({{"draining", !flags.resume},
                        {"released_count", result.released_count},
                        {"waiter_count", result.waiter_count},
                        {"group_count", result.group_count}},
                       text);
}

}  // namespace

void AddDrainCommand(CLI::App& parent, Context& context) {
  const auto flags = std::make_shared<Flags>();
  CLI::App* command =
      AddCommand(parent, context, "drain", "Stop taking new groups and joins, before a restart",
                 "cohort drain\n"
                 "cohort drain --now\n"
                 "cohort drain --resume",
                 [&context, flags] { return Drain(context, *flags); });
  CLI::Option* now =
      command->add_flag("--now", flags->now, "also answer every parked call UNAVAILABLE");
  command->add_flag("--resume", flags->resume, "undo an earlier drain")->excludes(now);
}

}  // namespace cohort::cli
