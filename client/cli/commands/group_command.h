// `cohort group`: list, show, watch, evict, close.
#ifndef COHORT_CLIENT_CLI_COMMANDS_GROUP_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_GROUP_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddGroupCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_GROUP_COMMAND_H_
