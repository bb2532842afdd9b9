// The common parts of the tool's commands: exit codes, the environment, and the connection to the
// coordinator.
//
// A command is a function that adds its subcommand to the parser. Parsing stores the chosen action
// in the context; the tool runs it afterwards, outside of the parser.
#ifndef COHORT_CLIENT_CLI_CONTEXT_COMMAND_CONTEXT_H_
#define COHORT_CLIENT_CLI_CONTEXT_COMMAND_CONTEXT_H_

#include <cstdint>
#include <functional>
#include <istream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "client/cli/clients/clients.h"
#include "client/cli/clients/group_maker.h"
#include "client/cli/clients/nccl_ras_client.h"
#include "client/cli/output/printer.h"
#include "client/cli/output/report_json.h"
#include "client/rendezvous/report/report.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace cohort::cli {

// Documented in `cohort --help` and README.md; scripts depend on them.
enum class ExitCode : int {
  kOk = 0,
  kError = 1,
  kUsage = 2,            // the command line, or INVALID_ARGUMENT
  kMissing = 3,          // DEADLINE_EXCEEDED, or `who-is-missing` found a missing member
  kNotFound = 4,         // NOT_FOUND: group, member, key
  kUnavailable = 5,      // UNAVAILABLE: no coordinator, or it drains
  kAborted = 6,          // ABORTED, CANCELLED: a member was lost, the generation or the round ended
  kExhausted = 7,        // RESOURCE_EXHAUSTED: a limit
  kConditionNotMet = 8,  // compare-and-set did not write, the queue stayed empty, may not
  kConflict = 9,         // FAILED_PRECONDITION, ALREADY_EXISTS: members disagree, a rank is taken
  kInterrupted = 130,    // SIGINT (SIGTERM: 143)
  kClosedPipe = 141,     // the reader of standard output has gone
};

// The objects outside of the tool; tests bring their own. All are borrowed.
struct Environment {
  Clients* clients = nullptr;
  GroupMaker* groups = nullptr;
  NcclRasClient* nccl = nullptr;  // null: NCCL is not asked
  const Clock* clock = nullptr;
  std::istream* in = nullptr;
  Printer* printer = nullptr;
  std::function<void(absl::Duration)> sleep;
  // Value of COHORT_COORDINATOR; empty when not set.
  std::string coordinator;
  // Value of COHORT_RANK; empty when not set.
  std::string rank;
  // Sets (or with nullptr clears) a function that runs before an interrupt ends the process. May be
  // empty.
  std::function<void(std::function<void()>)> set_on_interrupt;
};

struct GlobalOptions {
  std::string coordinator = "127.0.0.1:7700";
  std::string tenant;
  bool json = false;
  // Absent: each command's own default.
  std::optional<absl::Duration> timeout;
};

// An action returns its exit code, or a status, which the tool prints as an error.
using Action = std::function<absl::StatusOr<ExitCode>()>;

// Confined to one thread.
class Context {
 public:
  Context(Environment environment, std::vector<std::string> arguments)
      : environment_(std::move(environment)), arguments_(std::move(arguments)) {}
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  GlobalOptions& options() { return options_; }
  // The command line, without the program's name.
  const std::vector<std::string>& arguments() const { return arguments_; }
  const Environment& environment() const { return environment_; }
  Printer& printer() { return *environment_.printer; }
  bool json() const { return options_.json; }
  // Prints a result: `json` with --json, else `text`. Returns kOk.
  ExitCode Print(const Json& json, const std::string& text);
  // The --timeout given, or else this command's `otherwise`.
  absl::Duration TimeoutOr(absl::Duration otherwise) const {
    return options_.timeout.value_or(otherwise);
  }

  void set_action(Action action) { action_ = std::move(action); }
  const Action& action() const { return action_; }

  // The connection's options; OnAway reports through set_on_away.
  client::ConnectionOptions ConnectionOptions();
  // One per run, made on first use.
  absl::StatusOr<std::shared_ptr<client::Connection>> Connect();
  absl::StatusOr<std::unique_ptr<client::AdminClient>> Admin();
  absl::StatusOr<std::unique_ptr<client::StoreClient>> Store(absl::string_view group);

  // Sets the function that shows from now on that the coordinator is away. Null: a remark shows it.
  void set_on_away(std::function<void(const client::AwayReport&)> on_away) {
    on_away_ = std::move(on_away);
  }

  // `work` runs before an interrupt ends the process, on another thread. Null: nothing does.
  void SetOnInterrupt(std::function<void()> work) {
    if (environment_.set_on_interrupt) environment_.set_on_interrupt(std::move(work));
  }

  // The last news about missing members; the error that follows shows it.
  void set_missing(std::optional<client::MissingReport> report) { missing_ = std::move(report); }
  const std::optional<client::MissingReport>& missing() const { return missing_; }

 private:
  void OnAway(const client::AwayReport& away);

  const Environment environment_;
  const std::vector<std::string> arguments_;
  GlobalOptions options_;
  Action action_;
  std::shared_ptr<client::Connection> connection_;
  std::optional<client::MissingReport> missing_;
  std::function<void(const client::AwayReport&)> on_away_;
  std::optional<client::AwayKind> remarked_;
  const std::thread::id thread_ = std::this_thread::get_id();
};

// Adds a subcommand that runs `action` when chosen. `examples` are lines without indentation;
// `timeout` is the default of --timeout in the help text.
CLI::App* AddCommand(CLI::App& parent, Context& context, const std::string& name,
                     const std::string& description, const std::string& examples, Action action,
                     const std::string& timeout = "10s");
// Adds a subcommand that only holds other subcommands, one of which must be chosen.
CLI::App* AddNoun(CLI::App& parent, const std::string& name, const std::string& description);

// An option such as "500ms", "30s", "5m": finite and not negative; anything else is a usage error.
CLI::Option* AddDuration(CLI::App& command, const std::string& name,
                         std::optional<absl::Duration>& target, const std::string& description);

// For an option's check(): a whole number, not below `least`; anything else is a usage error.
std::function<std::string(const std::string&)> WholeNumber(int64_t least);

// Returns all of FILE, or of standard input for "-". Errors: NOT_FOUND (no such file), INTERNAL (it
// cannot be read).
absl::StatusOr<std::string> ReadPayload(Context& context, const std::string& file);

// Creates or replaces FILE. Errors: INTERNAL (it cannot be written).
absl::Status WriteFile(const std::string& file, absl::string_view bytes);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_CONTEXT_COMMAND_CONTEXT_H_
