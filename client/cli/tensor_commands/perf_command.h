// `cohort perf`: how fast a group moves tensors, and whether it moves them right.
#ifndef COHORT_CLIENT_CLI_TENSOR_COMMANDS_PERF_COMMAND_H_
#define COHORT_CLIENT_CLI_TENSOR_COMMANDS_PERF_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddPerfCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TENSOR_COMMANDS_PERF_COMMAND_H_
