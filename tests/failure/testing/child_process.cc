#include "tests/failure/testing/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

// Waits until `descriptor` is readable or at its end.
bool AwaitReadable(int descriptor, absl::Duration timeout) {
  pollfd waited{descriptor, POLLIN, 0};
  return poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
}

}  // namespace

ChildProcess::ChildProcess(std::vector<std::string> command)
    : error_path_(absl::StrCat(NewFolder(), "/stderr")) {
  signal(SIGPIPE, SIG_IGN);
  command[0] = ProgramPath(command[0]);
  int input[2];
  int output[2];
  if (pipe2(input, O_CLOEXEC) != 0 || pipe2(output, O_CLOEXEC) != 0) std::abort();
  // Spawned, not forked: this process has threads that hold locks.
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, error_path_.c_str(),
                                   O_WRONLY | O_CREAT | O_APPEND, 0600);
  std::vector<char*> arguments;
  for (std::string& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  if (posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ) != 0) {
    std::abort();
  }
  posix_spawn_file_actions_destroy(&actions);
  close(input[0]);
  close(output[1]);
  input_ = input[1];
  output_ = output[0];
}

ChildProcess::~ChildProcess() {
  Kill();
  close(input_);
  close(output_);
}

void ChildProcess::WriteLine(const std::string& line) {
  const std::string text = absl::StrCat(line, "\n");
  // Shorter than a pipe's buffer, so it is written whole, or not at all when the child has ended.
  if (write(input_, text.data(), text.size()) < 0) return;
}

absl::StatusOr<std::string> ChildProcess::ReadLine(absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  while (true) {
    if (const size_t end = unread_.find('\n'); end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (left <= absl::ZeroDuration() || !AwaitReadable(output_, left)) {
      return absl::DeadlineExceededError(absl::StrCat("no line came; stderr: ", ErrorText()));
    }
    char buffer[4096];
    const ssize_t size = read(output_, buffer, sizeof(buffer));
    if (size <= 0) {
      return absl::UnavailableError(absl::StrCat("the child ended; stderr: ", ErrorText()));
    }
    unread_.append(buffer, static_cast<size_t>(size));
  }
}

std::string ChildProcess::ErrorText() const {
  std::ifstream file(error_path_);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void ChildProcess::Signal(int signal) {
  if (!exit_.has_value()) kill(pid_, signal);
}

void ChildProcess::Kill() {
  if (exit_.has_value()) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  exit_ = 128 + SIGKILL;
}

absl::StatusOr<int> ChildProcess::Wait(absl::Duration timeout) {
  if (exit_.has_value()) return *exit_;
  const int process = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  const bool ended = AwaitReadable(process, timeout);
  close(process);
  if (!ended) return absl::DeadlineExceededError("it still runs");
  int how = 0;
  waitpid(pid_, &how, 0);
  exit_ = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
  return *exit_;
}

int64_t ResidentBytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  int64_t kib = 0;
  while (status >> word) {
    if (word == "VmRSS:" && status >> kib) return kib * 1024;
  }
  return 0;
}

}  // namespace cohort::testing
