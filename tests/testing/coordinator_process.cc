#include "tests/testing/coordinator_process.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"

namespace cohort::testing {
namespace {

// The port, or 0 while the file is not there or not complete.
int ReadPort(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  int port = 0;
  if (!std::getline(file, line)) return 0;
  // The file holds a port, or an address that ends in one.
  const size_t colon = line.rfind(':');
  const std::string digits = colon == std::string::npos ? line : line.substr(colon + 1);
  return absl::SimpleAtoi(digits, &port) ? port : 0;
}

// Readable when the process ends. -1: none.
int OpenProcess(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

// Waits until `descriptor` is readable.
bool AwaitReadable(int descriptor, absl::Duration timeout) {
  pollfd waited{descriptor, POLLIN, 0};
  return poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) > 0;
}

}  // namespace

std::string ProgramPath(const std::string& path) {
  if (absl::StartsWith(path, "/")) return path;
  if (const char* const bundle = std::getenv("COHORT_TEST_PROGRAMS"); bundle != nullptr) {
    return absl::StrCat(bundle, "/", path.substr(path.rfind('/') + 1));
  }
  const char* const folder = std::getenv("TEST_SRCDIR");
  const char* const workspace = std::getenv("TEST_WORKSPACE");
  if (folder == nullptr || workspace == nullptr) return path;
  return absl::StrCat(folder, "/", workspace, "/", path);
}

std::string NewFolder() {
  const char* const base = std::getenv("TEST_TMPDIR");
  std::string name = absl::StrCat(base == nullptr ? "/tmp" : base, "/cohort-XXXXXX");
  if (mkdtemp(name.data()) == nullptr) std::abort();
  return name;
}

std::vector<std::string> MoreCoordinatorFlags() {
  const char* const more = std::getenv(kCoordinatorFlagsVariable);
  if (more == nullptr) return {};
  return absl::StrSplit(more, ' ');
}

CoordinatorProcess::CoordinatorProcess(Options options)
    : options_(std::move(options)),
      port_file_(absl::StrCat(NewFolder(), "/port")),
      port_(options_.port) {}

CoordinatorProcess::~CoordinatorProcess() { Kill(); }

std::string CoordinatorProcess::address() const { return absl::StrCat("127.0.0.1:", port_); }

absl::Status CoordinatorProcess::Start() {
  unlink(port_file_.c_str());
  std::vector<std::string> arguments = {ProgramPath(options_.binary),
                                        "--listen",
                                        absl::StrCat("127.0.0.1:", port_),
                                        "--metrics-listen",
                                        "",
                                        "--port-file",
                                        port_file_};
  arguments.insert(arguments.end(), options_.flags.begin(), options_.flags.end());
  const std::vector<std::string> more = MoreCoordinatorFlags();
  arguments.insert(arguments.end(), more.begin(), more.end());
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  std::vector<std::string> environment = options_.environment;
  std::vector<char*> envp;
  for (std::string& variable : environment) envp.push_back(variable.data());
  for (char** variable = environ; *variable != nullptr; ++variable) envp.push_back(*variable);
  envp.push_back(nullptr);
  // Spawned, not forked: this process has threads that hold locks.
  if (const int error = posix_spawn(&pid_, argv[0], nullptr, nullptr, argv.data(), envp.data());
      error != 0) {
    pid_ = -1;
    return absl::UnavailableError(absl::StrCat("cannot start ", argv[0], ": ", strerror(error)));
  }

  const Instant deadline = Clock::Steady().Now() + options_.start_timeout;
  const int process = OpenProcess(pid_);
  absl::Status status;
  while (true) {
    if (const int port = ReadPort(port_file_); port != 0) {
      port_ = port;
      break;
    }
    // Checks again every 10 ms, and at once when the process ends.
    if (AwaitReadable(process, absl::Milliseconds(10))) {
      int how = 0;
      waitpid(pid_, &how, 0);
      pid_ = -1;
      status = absl::UnavailableError(absl::StrCat(arguments[0], " ended with wait status ", how));
      break;
    }
    if (Clock::Steady().Now() > deadline) {
      status = absl::UnavailableError(absl::StrCat(arguments[0], " did not listen in time"));
      break;
    }
  }
  close(process);
  if (!status.ok()) Kill();
  return status;
}

void CoordinatorProcess::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

absl::StatusOr<int> CoordinatorProcess::Terminate(absl::Duration timeout) {
  if (pid_ <= 0) return absl::FailedPreconditionError("it does not run");
  kill(pid_, SIGTERM);
  return Wait(timeout);
}

absl::StatusOr<int> CoordinatorProcess::Wait(absl::Duration timeout) {
  if (pid_ <= 0) return absl::FailedPreconditionError("it does not run");
  const int process = OpenProcess(pid_);
  const bool ended = AwaitReadable(process, timeout);
  close(process);
  if (!ended) return absl::DeadlineExceededError("it still runs");
  int how = 0;
  waitpid(pid_, &how, 0);
  pid_ = -1;
  return WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
}

void CoordinatorProcess::Pause() {
  if (pid_ <= 0) return;
  kill(pid_, SIGSTOP);
  // The threads of the process stop one after the other.
  siginfo_t info = {};
  while (waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WEXITED | WNOWAIT) != 0 &&
         errno == EINTR) {
  }
}
void CoordinatorProcess::Resume() {
  if (pid_ > 0) kill(pid_, SIGCONT);
}

}  // namespace cohort::testing
