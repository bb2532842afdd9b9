// Each function adds one command of this folder to the parser; the file of that name defines it.
#ifndef COHORT_CLIENT_CLI_COMMANDS_COMMANDS_H_
#define COHORT_CLIENT_CLI_COMMANDS_COMMANDS_H_

#include "client/cli/context/command_context.h"

namespace cohort::cli {

void AddBarrierCommand(CLI::App& parent, Context& context);
void AddCanICommand(CLI::App& parent, Context& context);  // access_command.cc
void AddDrainCommand(CLI::App& parent, Context& context);
void AddGroupCommand(CLI::App& parent, Context& context);
void AddLimitsCommand(CLI::App& parent, Context& context);  // server_command.cc
void AddObjectCommand(CLI::App& parent, Context& context);
void AddPolicyCommand(CLI::App& parent, Context& context);  // access_command.cc
void AddServerCommand(CLI::App& parent, Context& context);
void AddStoreCommand(CLI::App& parent, Context& context);
void AddWaitsCommand(CLI::App& parent, Context& context);  // who_is_missing_command.cc
void AddWhoIsMissingCommand(CLI::App& parent, Context& context);
void AddWorkerCommand(CLI::App& parent, Context& context);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_COMMANDS_H_
