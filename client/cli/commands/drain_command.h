// `cohort drain`: no new groups, for as long as the coordinator is being replaced.
#ifndef COHORT_CLIENT_CLI_COMMANDS_DRAIN_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_DRAIN_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddDrainCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_DRAIN_COMMAND_H_
