// cohort trace: the last calls of a whole group in one file, and who came last in them.
#ifndef COHORT_CLIENT_CLI_TRACE_TRACE_COMMAND_H_
#define COHORT_CLIENT_CLI_TRACE_TRACE_COMMAND_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddTraceCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TRACE_TRACE_COMMAND_H_
