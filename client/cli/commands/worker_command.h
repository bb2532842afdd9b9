// `cohort worker`: the ranks of a worker daemon, and their last calls.
#ifndef COHORT_CLIENT_CLI_COMMANDS_WORKER_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_WORKER_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddWorkerCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_WORKER_COMMAND_H_
