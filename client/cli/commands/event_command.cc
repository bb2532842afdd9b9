#include "client/cli/commands/event_command.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/unique_fd.h"
#include "client/cli/output/format.h"

extern char** environ;

namespace cohort::cli {
namespace {

constexpr absl::Duration kGracePeriod = absl::Seconds(1);
constexpr char kShell[] = "/bin/sh";

absl::string_view NameOf(absl::string_view variable) {
  return variable.substr(0, variable.find('='));
}

// This process' variables, but for those that `changed` has, and then `changed`. Borrows from both.
std::vector<char*> MergeVariables(const std::vector<std::string>& changed) {
  std::set<absl::string_view> names;
  for (const std::string& variable : changed) names.insert(NameOf(variable));
  std::vector<char*> merged;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (names.count(NameOf(*variable)) == 0) merged.push_back(*variable);
  }
  for (const std::string& variable : changed) {
    merged.push_back(const_cast<char*>(variable.c_str()));
  }
  merged.push_back(nullptr);
  return merged;
}

// The attributes and the files with which the command starts.
class SpawnSettings {
 public:
  SpawnSettings() {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
    posix_spawnattr_init(&attributes);
    // The command is the leader of a process group, so that signals reach its children.
    posix_spawnattr_setpgroup(&attributes, 0);
    // This process blocks its signals and ignores SIGPIPE. A command expects neither.
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    posix_spawnattr_setsigdefault(&attributes, &pipe);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnSettings() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
  SpawnSettings(const SpawnSettings&) = delete;
  SpawnSettings& operator=(const SpawnSettings&) = delete;

  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
};

// Returns false after `timeout`.
bool AwaitEnd(const UniqueFd& process, absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  pollfd end = {process.get(), POLLIN, 0};
  while (true) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    const int64_t left_ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(left) + 1, 0, 60'000);
    if (poll(&end, 1, static_cast<int>(left_ms)) > 0) return true;
    if (left <= absl::ZeroDuration()) return false;
  }
}

absl::Status EndOf(int status) {
  if (WIFSIGNALED(status)) {
    return absl::InternalError(absl::StrCat("the command was killed by signal ", WTERMSIG(status)));
  }
  if (WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("the command exited with ", WEXITSTATUS(status)));
}

}  // namespace

std::vector<std::string> VariablesOf(const client::GroupEvent& event) {
  const client::Cause& cause = event.cause;
  const bool names_member = event.rank.has_value() || !event.member.empty();
  const bool is_culprit =
      !names_member || (event.member == cause.member && event.rank == cause.rank);
  const std::optional<int> rank = names_member ? event.rank : cause.rank;
  const bool has_cause = cause.kind != client::CauseKind::kNone;
  return {
      absl::StrCat("COHORT_EVENT=", client::EventKindName(event.kind)),
      absl::StrCat("COHORT_GENERATION=", event.generation),
      absl::StrCat("COHORT_REVISION=", event.revision),
      absl::StrCat("COHORT_RANK=", rank.has_value() ? absl::StrCat(*rank) : ""),
      absl::StrCat("COHORT_MEMBER=", names_member ? event.member : cause.member),
      absl::StrCat("COHORT_HOST=", is_culprit ? cause.host : ""),
      absl::StrCat("COHORT_CAUSE=", has_cause ? client::CauseKindName(cause.kind) : ""),
      absl::StrCat("COHORT_REASON=", Printable(cause.detail)),
  };
}

absl::StatusOr<pid_t> EventCommand::Start(const client::GroupEvent& event) {
  std::vector<std::string> changed = variables_;
  for (std::string& variable : VariablesOf(event)) changed.push_back(std::move(variable));
  const std::vector<char*> variables = MergeVariables(changed);
  char* const arguments[] = {const_cast<char*>(kShell), const_cast<char*>("-c"),
                             const_cast<char*>(command_.c_str()), nullptr};
  const SpawnSettings settings;
  MutexLock lock(&mutex_);
  if (stopped_) return absl::CancelledError("the watch was interrupted");
  const int error = posix_spawn(&pid_, kShell, &settings.files, &settings.attributes, arguments,
                                variables.data());
  if (error == 0) return pid_;
  pid_ = 0;
  return absl::InternalError(absl::StrCat("cannot start ", kShell, ": ", std::strerror(error)));
}

void EventCommand::Signal(int signal) {
  MutexLock lock(&mutex_);
  // The number is the command's until it is reaped, which happens under the lock.
  if (pid_ != 0) kill(-pid_, signal);
}

int EventCommand::Reap(pid_t pid) {
  MutexLock lock(&mutex_);
  kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return status;
}

absl::Status EventCommand::Run(const client::GroupEvent& event) {
  COHORT_ASSIGN_OR_RETURN(const pid_t pid, Start(event));
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!process.is_open()) {
    const int error = errno;
    Reap(pid);
    return absl::InternalError(
        absl::StrCat("cannot wait for the command: ", std::strerror(error)));
  }
  const bool is_late = !AwaitEnd(process, time_limit_);
  if (is_late) {
    Signal(SIGTERM);
    AwaitEnd(process, kGracePeriod);
  }
  const int status = Reap(pid);
  if (is_late) {
    return absl::DeadlineExceededError(
        absl::StrCat("the command took longer than ", ShortDuration(time_limit_)));
  }
  return EndOf(status);
}

void EventCommand::Stop() {
  MutexLock lock(&mutex_);
  stopped_ = true;
  if (pid_ == 0) return;
  kill(-pid_, SIGTERM);
  mutex_.AwaitWithTimeout(
      absl::Condition(+[](pid_t* running) { return *running == 0; }, &pid_), kGracePeriod);
  if (pid_ != 0) kill(-pid_, SIGKILL);
}

}  // namespace cohort::cli
