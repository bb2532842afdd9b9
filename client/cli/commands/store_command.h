// `cohort store`: keys, counters and queues.
#ifndef COHORT_CLIENT_CLI_COMMANDS_STORE_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_STORE_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddStoreCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_STORE_COMMAND_H_
