#include "tests/benchmark/harness/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"

namespace cohort::benchmark {
namespace {

// Runs between fork and exec, and so calls only functions that are safe in a signal handler.
[[noreturn]] void Become(char* const* arguments, int input, int output, int log, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  close_range(3, ~0U, 0);
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProcess>> ChildProcess::Start(
    const ChildProcessOptions& options) {
  if (options.command.empty() || access(options.command[0].c_str(), X_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot execute \"", options.command.empty() ? "" : options.command[0], "\""));
  }
  const std::string log_path = options.log_path.empty() ? "/dev/null" : options.log_path;
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", log_path));
  int input[2] = {-1, -1};
  int output[2] = {-1, -1};
  if (options.pipes) {
    if (pipe2(input, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
    if (pipe2(output, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe");
    signal(SIGPIPE, SIG_IGN);
  } else {
    input[0] = open("/dev/null", O_RDONLY | O_CLOEXEC);
  }
  std::vector<char*> arguments;
  for (const std::string& argument : options.command) {
    arguments.push_back(const_cast<char*>(argument.c_str()));
  }
  arguments.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(arguments.data(), input[0], options.pipes ? output[1] : log, log, parent);
  const int fork_error = errno;
  close(log);
  close(input[0]);
  if (options.pipes) close(output[1]);
  if (pid < 0) return absl::ErrnoToStatus(fork_error, "fork");

  std::unique_ptr<ChildProcess> child(new ChildProcess);
  child->pid_ = pid;
  if (options.pipes) {
    child->to_child_ = fdopen(input[1], "w");
    child->from_child_ = fdopen(output[0], "r");
  }
  return child;
}

ChildProcess::~ChildProcess() {
  if (to_child_ != nullptr) std::fclose(to_child_);
  if (from_child_ != nullptr) std::fclose(from_child_);
  if (exit_.has_value()) return;
  Signal(SIGTERM).IgnoreError();
  if (Wait(absl::Seconds(5)).ok()) return;
  Signal(SIGKILL).IgnoreError();
  Wait(absl::InfiniteDuration()).IgnoreError();
}

absl::Status ChildProcess::Signal(int signal) {
  if (exit_.has_value()) return absl::FailedPreconditionError("it has ended");
  if (kill(pid_, signal) != 0) return absl::ErrnoToStatus(errno, "kill");
  return absl::OkStatus();
}

absl::StatusOr<ExitStatus> ChildProcess::Wait(absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  while (!exit_.has_value()) {
    int status = 0;
    const pid_t ended = waitpid(pid_, &status, WNOHANG);
    if (ended < 0) return absl::ErrnoToStatus(errno, "waitpid");
    if (ended == pid_) {
      exit_.emplace();
      if (WIFEXITED(status)) exit_->code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) exit_->signal = WTERMSIG(status);
      break;
    }
    if (absl::Now() > deadline) return absl::DeadlineExceededError("it still runs");
    absl::SleepFor(absl::Milliseconds(1));
  }
  return *exit_;
}

absl::Status ChildProcess::WriteLine(absl::string_view line) {
  if (to_child_ == nullptr) return absl::FailedPreconditionError("started without pipes");
  if (std::fprintf(to_child_, "%.*s\n", static_cast<int>(line.size()), line.data()) < 0 ||
      std::fflush(to_child_) != 0) {
    return absl::UnavailableError("the child does not read");
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ChildProcess::ReadLine() {
  if (from_child_ == nullptr) return absl::FailedPreconditionError("started without pipes");
  char* buffer = nullptr;
  size_t capacity = 0;
  const ssize_t size = getline(&buffer, &capacity, from_child_);
  std::string line = size > 0 ? std::string(buffer, size) : std::string();
  std::free(buffer);
  if (size <= 0) return absl::UnavailableError("the child has ended its output");
  if (line.back() == '\n') line.pop_back();
  return line;
}

absl::StatusOr<int> WaitForPortFile(const std::string& path, ChildProcess& server,
                                    absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  int last_read = 0;
  while (absl::Now() < deadline) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    const std::vector<absl::string_view> parts = absl::StrSplit(line, ':');
    int port = 0;
    // A number that was only half written at the first read differs at the second.
    if (absl::SimpleAtoi(parts.back(), &port) && port > 0 && port == last_read) return port;
    last_read = port;
    absl::StatusOr<ExitStatus> ended = server.Wait(absl::ZeroDuration());
    if (ended.ok()) {
      return absl::UnavailableError(absl::StrCat("the server ended at once, exit code ",
                                                 ended->code, ", signal ", ended->signal));
    }
    absl::SleepFor(absl::Milliseconds(5));
  }
  return absl::DeadlineExceededError(absl::StrCat("no port in ", path));
}

absl::StatusOr<int> FreeLoopbackPort() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  const bool bound = bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  const int error = errno;
  close(fd);
  if (!bound) return absl::ErrnoToStatus(error, "bind");
  return ntohs(address.sin_port);
}

absl::StatusOr<int64_t> ResidentBytes(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  int64_t kib = 0;
  while (status >> word) {
    if (word == "VmRSS:" && status >> kib) return kib * 1024;
  }
  return absl::NotFoundError(absl::StrCat("process ", pid, " has no VmRSS"));
}

}  // namespace cohort::benchmark
