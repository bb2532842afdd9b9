// `cohort push` and `cohort pull`: a checkpoint from one rank of a group to all others.
#ifndef COHORT_CLIENT_CLI_TENSOR_COMMANDS_CHECKPOINT_COMMAND_H_
#define COHORT_CLIENT_CLI_TENSOR_COMMANDS_CHECKPOINT_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddPushCommand(CLI::App& parent, Context& context);
void AddPullCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TENSOR_COMMANDS_CHECKPOINT_COMMAND_H_
