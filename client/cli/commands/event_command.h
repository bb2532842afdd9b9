// The command that `cohort group watch --exec` runs at each event of a group.
#ifndef COHORT_CLIENT_CLI_COMMANDS_EVENT_COMMAND_H_
#define COHORT_CLIENT_CLI_COMMANDS_EVENT_COMMAND_H_

#include <sys/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "client/rendezvous/report/report.h"

namespace cohort::cli {

// `/bin/sh -c` runs the command, which has the facts of the event in variables: see VariablesOf.
// They never become part of the command's text. Its standard input is empty, and its standard
// output is this process' standard error.
//
// Confined to one thread, but for Stop.
class EventCommand {
 public:
  // `variables` such as COHORT_COORDINATOR=host:7700 are the same at each event.
  EventCommand(std::string command, absl::Duration time_limit, std::vector<std::string> variables)
      : command_(std::move(command)), time_limit_(time_limit), variables_(std::move(variables)) {}
  EventCommand(const EventCommand&) = delete;
  EventCommand& operator=(const EventCommand&) = delete;

  // Blocks until the command ends, the time limit at most and two seconds. Then it kills the
  // processes that the command left behind. Errors: CANCELLED (Stop was called), DEADLINE_EXCEEDED,
  // INTERNAL (the command failed, or does not start).
  absl::Status Run(const client::GroupEvent& event);

  // Any thread may call it: ends the command that runs, about a second at most; no other starts.
  void Stop();

 private:
  absl::StatusOr<pid_t> Start(const client::GroupEvent& event);
  // Sends a signal to the command and its children, if it runs.
  void Signal(int signal);
  // Kills the processes of the command that still run. Returns the status of the command.
  int Reap(pid_t pid);

  const std::string command_;
  const absl::Duration time_limit_;
  const std::vector<std::string> variables_;
  Mutex mutex_;
  pid_t pid_ ABSL_GUARDED_BY(mutex_) = 0;  // 0: no command runs
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
};

// COHORT_EVENT=lost and so on: COHORT_GENERATION, COHORT_REVISION, COHORT_RANK, COHORT_MEMBER,
// COHORT_HOST, COHORT_CAUSE, COHORT_REASON. Unknown facts are empty. Rank, member and host are
// those of the event, or else those of its cause.
std::vector<std::string> VariablesOf(const client::GroupEvent& event);

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_COMMANDS_EVENT_COMMAND_H_
