// `cohort object`: objects between ranks, from and to files and pipes.
#ifndef COHORT_CLIENT_CLI_COMMANDS_OBJECT_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_OBJECT_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddObjectCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_OBJECT_COMMAND_H_
