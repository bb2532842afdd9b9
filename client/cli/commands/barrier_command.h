// `cohort barrier`: takes part in one barrier as a rank.
#ifndef COHORT_CLIENT_CLI_COMMANDS_BARRIER_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_BARRIER_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddBarrierCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_BARRIER_COMMAND_H_
