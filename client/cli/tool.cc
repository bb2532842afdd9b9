#include "client/cli/tool.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <sstream>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/version.h"
#include "client/cli/commands/commands.h"
#include "client/cli/context/error_report.h"
#include "client/cli/output/format.h"
#include "client/cli/tensor_commands/checkpoint_command.h"
#include "client/cli/tensor_commands/perf_command.h"
#include "client/cli/trace/trace_command.h"

namespace cohort::cli {
namespace {

constexpr char kFooter[] =
    R"(Durations are such as 500ms, 30s, 5m. With --json results are one JSON value on standard
output (watch: one on each line), and errors are {"error":{...}} there, besides their line
on standard error.

Exit codes:
    0  ok
    1  any other error
    2  usage: the command line is wrong, or the coordinator called it an invalid argument
    3  somebody is missing: a deadline was exceeded, who-is-missing found an open wait, or
       trace no record of a rank
    4  not found: group, member, key or file
    5  the coordinator is unavailable, drains, or (who-is-missing) has just started
    6  aborted: a member was lost, or the generation or the round ended
    7  a limit is exhausted
    8  a condition is not met: compare-and-set did not write, the queue is empty
    9  conflict: members disagree, or the rank is taken
  130  interrupted (143: terminated); a joined group was left first
  141  the reader of standard output has gone

Examples:
  cohort server
  cohort who-is-missing trainer-weights
  cohort barrier nightly --rank 0 --world-size 2
  cohort store put config/path /data/run7
  cohort perf --members 4)";

void AddGlobalOptions(CLI::App& app, Context& context) {
  GlobalOptions& options = context.options();
  if (!context.environment().coordinator.empty()) {
    options.coordinator = context.environment().coordinator;
  }
  app.add_option("--coordinator", options.coordinator,
                 "the coordinator's address: host:port, [::1]:port or unix:/path (default: "
                 "$COHORT_COORDINATOR, else 127.0.0.1:7700)")
      ->type_name("ADDRESS");
  app.add_option("--tenant", options.tenant, "the tenant (default: default)");
  app.add_flag("--json", options.json, "print JSON, for programs");
  AddDuration(app, "--timeout", options.timeout,
              "how long the command may take (default: the command's own; watches: for ever)");
  app.set_version_flag("--version", absl::StrCat("cohort ", kVersion));
}

void AddCommands(CLI::App& app, Context& context) {
  app.require_subcommand(1);
  // Global flags may stand anywhere on the line.
  app.fallthrough();
  AddGroupCommand(app, context);
  AddWhoIsMissingCommand(app, context);
  AddWaitsCommand(app, context);
  AddBarrierCommand(app, context);
  AddObjectCommand(app, context);
  AddPerfCommand(app, context);
  AddPushCommand(app, context);
  AddPullCommand(app, context);
  AddStoreCommand(app, context);
  AddDrainCommand(app, context);
  AddServerCommand(app, context);
  AddWorkerCommand(app, context);
  AddTraceCommand(app, context);
  AddLimitsCommand(app, context);
  AddCanICommand(app, context);
  AddPolicyCommand(app, context);
  app.footer(kFooter);
}

// The words of the command that was being parsed: "cohort group show".
std::string CommandPath(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  if (chosen.empty()) return app.get_name();
  return absl::StrCat(app.get_name(), " ", CommandPath(*chosen.front()));
}

const CLI::App& Chosen(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : Chosen(*chosen.front());
}

// The parser's own text only says that a command is required.
std::string WrongCommand(const CLI::App& noun, const std::vector<std::string>& rest) {
  std::vector<std::string> names;
  for (const CLI::App* command : noun.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  return absl::StrCat(rest.empty() ? "a command is missing" : absl::StrCat("no command ", rest[0]),
                      "; there are ", absl::StrJoin(names, ", "));
}

// The error text for a wrong command line.
std::string UsageError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& chosen = Chosen(app);
  const bool needs_command =
      !chosen.get_subcommands([](const CLI::App*) { return true; }).empty() &&
      error.get_exit_code() == static_cast<int>(CLI::ExitCodes::RequiredError);
  return needs_command ? WrongCommand(chosen, app.remaining(/*recurse=*/true)) : error.what();
}

void PrintError(Context& context, const absl::Status& status) {
  const client::ErrorInfo info = context.environment().clients->GetErrorInfo(status);
  context.printer().Remark(absl::StrCat("cohort: ", ErrorLine(status, info, context.missing())));
  if (context.json()) context.printer().PrintJson(ErrorJson(status, info, context.missing()));
}

// Ends the tool after the parser: help and version are results, everything else is wrong usage.
ExitCode EndOfParsing(const CLI::App& app, const CLI::ParseError& error, Context& context,
                      bool json) {
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
    std::ostringstream text;
    app.exit(error, text, text);
    context.printer().PrintText(text.str());
    return ExitCode::kOk;
  }
  const std::string text = UsageError(app, error);
  context.printer().Remark(
      absl::StrCat("cohort: ", Printable(text), " (try '", CommandPath(app), " --help')"));
  if (json) {
    context.printer().PrintJson(
        ErrorJson(absl::InvalidArgumentError(text), client::ErrorInfo(), {}));
  }
  return ExitCode::kUsage;
}

// If standard output did not take the result, the tool fails.
ExitCode AfterOutput(Context& context, ExitCode code) {
  const int error = context.printer().out_errno();
  if (error == 0) return code;
  if (error == EPIPE) return ExitCode::kClosedPipe;
  context.printer().Remark(
      absl::StrCat("cohort: cannot write to standard output: ", std::strerror(error)));
  return ExitCode::kError;
}

ExitCode ParseAndRun(const std::vector<std::string>& arguments, Context& context) {
  CLI::App app("Cohort's command line: groups of processes, who is missing in them, and the store",
               "cohort");
  const bool json = std::find(arguments.begin(), arguments.end(), "--json") != arguments.end();
  try {
    AddGlobalOptions(app, context);
    AddCommands(app, context);
    // The parser takes its arguments in reverse order.
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::ParseError& error) {
    return EndOfParsing(app, error, context, json);
  }
  const absl::StatusOr<ExitCode> code = context.action()();
  if (code.ok()) return *code;
  PrintError(context, code.status());
  return ExitCodeOf(code.status());
}

}  // namespace

ExitCode RunTool(const std::vector<std::string>& arguments, const Environment& environment) {
  Context context(environment, arguments);
  ExitCode code = ExitCode::kError;
  try {
    code = ParseAndRun(arguments, context);
  } catch (const std::exception& error) {
    context.printer().Remark(absl::StrCat("cohort: INTERNAL: ", Printable(error.what())));
  }
  return AfterOutput(context, code);
}

}  // namespace cohort::cli
