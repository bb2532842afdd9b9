// The tool without the process around it: a command line in, an exit code out.
#ifndef COHORT_CLIENT_CLI_TOOL_H_
#define COHORT_CLIENT_CLI_TOOL_H_

#include <string>
#include <vector>

#include "client/cli/context/command_context.h"

namespace cohort::cli {

// `arguments` are those after the program's name. Never throws.
ExitCode RunTool(const std::vector<std::string>& arguments, const Environment& environment);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_TOOL_H_
