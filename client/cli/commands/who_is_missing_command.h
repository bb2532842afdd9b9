// `cohort who-is-missing` and `cohort waits`: what a hang is asked.
#ifndef COHORT_CLIENT_CLI_COMMANDS_WHO_IS_MISSING_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_WHO_IS_MISSING_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddWhoIsMissingCommand(CLI::App& parent, Context& context);
void AddWaitsCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_WHO_IS_MISSING_COMMAND_H_
