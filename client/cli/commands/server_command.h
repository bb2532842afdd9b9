// `cohort server` and `cohort limits`: totals and limits of the coordinator.
#ifndef COHORT_CLIENT_CLI_COMMANDS_SERVER_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_SERVER_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddServerCommand(CLI::App& parent, Context& context);
void AddLimitsCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_SERVER_COMMAND_H_
