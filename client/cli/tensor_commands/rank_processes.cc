#include "client/cli/tensor_commands/rank_processes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "base/clock.h"
#include "base/shm/memory_file.h"
#include "base/status_macros.h"

namespace cohort::cli {
namespace {

// The others learn of a lost rank within milliseconds; then they leave the group.
constexpr absl::Duration kGrace = absl::Seconds(5);
constexpr absl::Duration kGracePeriod = absl::Seconds(1);
constexpr int kAborted = 6;
constexpr off_t kWords = 4096;

absl::Status Failed(absl::string_view what) {
  const auto code = errno == EAGAIN || errno == ENOMEM || errno == EMFILE || errno == ENFILE
                        ? absl::StatusCode::kResourceExhausted
                        : absl::StatusCode::kInternal;
  return absl::Status(code, absl::StrCat(what, ": ", std::strerror(errno)));
}

// In memory, or in the folder for temporary files if a sandbox refuses memfd_create.
UniqueFd UnnamedFile() {
  UniqueFd memory(shm::OpenMemoryFile("rank-errors"));
  if (memory.is_open() || !shm::IsMemoryFileForbidden(errno)) return memory;
  FILE* const file = tmpfile();
  if (file == nullptr) return UniqueFd();
  UniqueFd fd(fcntl(fileno(file), F_DUPFD_CLOEXEC, 0));
  fclose(file);
  return fd;
}

// Runs in the child, where few functions may be called. Does not return.
[[noreturn]] void BecomeRank(pid_t parent, int errors, char* const* arguments) {
  // The kernel kills a rank when its starter is killed.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);
  // This process takes its signals on one thread and blocks them on all others.
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int nothing = open("/dev/null", O_RDWR);
  if (nothing < 0 || dup2(nothing, STDIN_FILENO) < 0) _exit(127);
  if (errors >= 0 && (dup2(nothing, STDOUT_FILENO) < 0 || dup2(errors, STDERR_FILENO) < 0)) {
    _exit(127);
  }
  execv("/proc/self/exe", arguments);
  _exit(127);
}

// The last line that is not empty.
std::string LastLine(int file) {
  const off_t size = file < 0 ? 0 : lseek(file, 0, SEEK_END);
  if (size <= 0) return "";
  std::string text(static_cast<size_t>(std::min(size, kWords)), '\0');
  const ssize_t got = pread(file, text.data(), text.size(), size - static_cast<off_t>(text.size()));
  if (got <= 0) return "";
  text.resize(static_cast<size_t>(got));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  return lines.empty() ? "" : std::string(absl::StripPrefix(lines.back(), "cohort: "));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankProcesses>> RankProcesses::Start(
    const std::vector<std::vector<std::string>>& arguments) {
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop.get() < 0) return Failed("cannot make an eventfd");
  std::unique_ptr<RankProcesses> ranks(new RankProcesses(std::move(stop)));
  for (size_t rank = 0; rank < arguments.size(); ++rank) {
    COHORT_RETURN_IF_ERROR(ranks->StartOne(static_cast<int>(rank), arguments[rank]));
  }
  return ranks;
}

absl::Status RankProcesses::StartOne(int number, const std::vector<std::string>& arguments) {
  Rank rank;
  rank.rank = number;
  if (number > 0) {
    rank.errors = UnnamedFile();
    if (rank.errors.get() < 0) return Failed(absl::StrCat("rank ", number, ": no unnamed file"));
  }
  std::vector<char*> words = {const_cast<char*>("cohort")};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  rank.pid = fork();
  if (rank.pid < 0) return Failed(absl::StrCat("cannot start rank ", number));
  if (rank.pid == 0) BecomeRank(parent, rank.errors.get(), words.data());
  rank.process = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, rank.pid, 0)));
  const absl::Status watched =
      rank.process.get() < 0 ? Failed("cannot watch a process") : absl::OkStatus();
  ranks_.push_back(std::move(rank));
  return watched;
}

RankProcesses::~RankProcesses() { End(kGracePeriod); }

bool RankProcesses::AnyRunning() const {
  return std::any_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.running; });
}

bool RankProcesses::Poll(absl::Duration timeout) {
  std::vector<pollfd> watched = {{stop_.get(), POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    if (rank.running) watched.push_back({rank.process.get(), POLLIN, 0});
  }
  int64_t left_ms = -1;
  if (timeout != absl::InfiniteDuration()) {
    left_ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout) + 1, 0, 60'000);
  }
  poll(watched.data(), watched.size(), static_cast<int>(left_ms));
  return watched[0].revents != 0;
}

void RankProcesses::Reap() {
  for (Rank& rank : ranks_) {
    if (rank.running && waitpid(rank.pid, &rank.status, WNOHANG) == rank.pid) rank.running = false;
  }
}

void RankProcesses::Signal(int signal) {
  for (Rank& rank : ranks_) {
    // Not reaped yet, so the number is still this process'.
    if (!rank.running) continue;
    rank.killed_by_us = true;
    kill(rank.pid, signal);
  }
}

void RankProcesses::End(absl::Duration grace_period) {
  Reap();
  if (AnyRunning()) Signal(SIGTERM);
  const Instant deadline = Clock::Steady().Now() + grace_period;
  while (AnyRunning() && Clock::Steady().Now() < deadline) {
    std::vector<pollfd> watched;
    for (const Rank& rank : ranks_) {
      if (rank.running) watched.push_back({rank.process.get(), POLLIN, 0});
    }
    poll(watched.data(), watched.size(),
         static_cast<int>(absl::ToInt64Milliseconds(deadline - Clock::Steady().Now())) + 1);
    Reap();
  }
  if (AnyRunning()) Signal(SIGKILL);
  for (Rank& rank : ranks_) {
    if (rank.running && waitpid(rank.pid, &rank.status, 0) == rank.pid) rank.running = false;
  }
  MutexLock lock(&mutex_);
  gone_ = true;
}

std::optional<RankFailure> RankProcesses::Wait() {
  Instant deadline = absl::InfiniteFuture();
  while (AnyRunning()) {
    const Instant now = Clock::Steady().Now();
    if (now >= deadline || Poll(deadline - now)) break;
    Reap();
    if (deadline == absl::InfiniteFuture() && Culprit().has_value()) {
      deadline = Clock::Steady().Now() + kGrace;
    }
  }
  End(kGracePeriod);
  return Culprit();
}

void RankProcesses::Stop() {
  const uint64_t one = 1;
  // An eventfd accepts a number at any time.
  if (write(stop_.get(), &one, sizeof(one)) != sizeof(one)) return;
  MutexLock lock(&mutex_);
  mutex_.AwaitWithTimeout(absl::Condition(&gone_), 2 * kGracePeriod);
}

std::optional<RankFailure> RankProcesses::Culprit() const {
  const auto weight = [](const Rank& rank) {
    if (rank.running || rank.killed_by_us || rank.status == 0) return 0;
    if (WIFSIGNALED(rank.status)) return 3;
    return WEXITSTATUS(rank.status) == kAborted ? 1 : 2;
  };
  const auto worst =
      std::max_element(ranks_.begin(), ranks_.end(),
                       [&weight](const Rank& a, const Rank& b) { return weight(a) < weight(b); });
  if (worst == ranks_.end() || weight(*worst) == 0) return std::nullopt;
  RankFailure failure = {worst->rank, worst->pid};
  if (WIFSIGNALED(worst->status)) {
    failure.signal = WTERMSIG(worst->status);
  } else {
    failure.exit_code = WEXITSTATUS(worst->status);
  }
  failure.words = LastLine(worst->errors.get());
  return failure;
}

}  // namespace cohort::cli
