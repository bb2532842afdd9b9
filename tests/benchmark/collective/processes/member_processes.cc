#include "tests/benchmark/collective/processes/member_processes.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "tests/benchmark/collective/processes/stop_signal.h"

// Debian 12's does not say so itself.
extern "C" {
#include <sys/pidfd.h>
}

namespace cohort::benchmark {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(5);
constexpr int kMaxFailures = 4;

// Waits until one of `descriptors` can be read or is hung up, and returns its index.
absl::StatusOr<int> AwaitReadable(const std::vector<int>& descriptors, absl::Time deadline) {
  std::vector<pollfd> polled;
  for (int descriptor : descriptors) polled.push_back({descriptor, POLLIN, 0});
  polled.push_back({StopDescriptor(), POLLIN, 0});
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
    if (left <= 0) return absl::DeadlineExceededError("no answer in time");
    const int ready = poll(polled.data(), polled.size(), static_cast<int>(left));
    if (ready < 0 && errno != EINTR) return absl::ErrnoToStatus(errno, "poll");
    if (StopSignal() != 0) return absl::CancelledError("stopped");
    for (size_t i = 0; ready > 0 && i < descriptors.size(); ++i) {
      if (polled[i].revents != 0) return static_cast<int>(i);
    }
  }
}

// OK if no answer is a failure; otherwise the first failure.
absl::Status StatusOf(const std::vector<std::string>& answers) {
  for (const std::string& answer : answers) {
    absl::string_view why = answer;
    if (absl::ConsumePrefix(&why, "unimplemented ")) return absl::UnimplementedError(why);
    if (absl::ConsumePrefix(&why, "error ")) return absl::InternalError(why);
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Command> OneForEachRank(const std::string& program, int members,
                                    const Command& arguments) {
  std::vector<Command> commands;
  for (int rank = 0; rank < members; ++rank) {
    Command command = {program, "--rank", absl::StrCat(rank)};
    command.insert(command.end(), arguments.begin(), arguments.end());
    commands.push_back(std::move(command));
  }
  return commands;
}

absl::Status MemberProcesses::Start() {
  if (!connections_.empty()) return absl::OkStatus();
  if (failures_ >= kMaxFailures) return absl::FailedPreconditionError("given up");
  const absl::Status started = StartProcesses();
  if (!started.ok()) {
    if (!absl::IsCancelled(started)) ++failures_;
    Kill();
  }
  return started;
}

absl::Status MemberProcesses::StartProcesses() {
  ++starts_;
  const std::string folder = absl::StrCat(options_.scratch, "/", options_.name, "-", starts_);
  const std::string control = folder + ".socket";
  std::error_code error;
  if (!std::filesystem::create_directory(folder, error)) {
    return absl::UnavailableError(absl::StrCat("cannot make ", folder, ": ", error.message()));
  }
  COHORT_ASSIGN_OR_RETURN(ControlListener listener, ControlListener::Listen(control));
  const Command arguments = {"--control", control,     "--folder",
                             folder,      "--members", absl::StrCat(options_.members)};
  for (const Command& command : options_.commands(arguments)) {
    ChildProcessOptions child;
    child.command = command;
    child.log_path = absl::StrCat(options_.scratch, "/", options_.name, ".log");
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> process, ChildProcess::Start(child));
    processes_.push_back(std::move(process));
  }

  const absl::Time deadline = absl::Now() + options_.deadline;
  while (static_cast<int>(connections_.size()) < options_.members) {
    // A short wait, because a program that cannot run never connects.
    const absl::StatusOr<int> ready =
        AwaitReadable({listener.fd()}, std::min(deadline, absl::Now() + absl::Milliseconds(200)));
    if (ready.ok()) {
      COHORT_ASSIGN_OR_RETURN(ControlSocket socket, listener.Accept());
      COHORT_ASSIGN_OR_RETURN(const pid_t pid, socket.PeerPid());
      connections_.push_back({std::move(socket), pidfd_open(pid, 0), std::nullopt});
      continue;
    }
    if (!absl::IsDeadlineExceeded(ready.status()) || absl::Now() > deadline) return ready.status();
    for (const auto& process : processes_) {
      if (process->Wait(absl::ZeroDuration()).ok()) {
        return absl::UnavailableError(absl::StrCat("a process of ", name(), " ended at once"));
      }
    }
  }
  return Welcome(deadline);
}

absl::Status MemberProcesses::Welcome(absl::Time deadline) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> answers, Answers(deadline));
  COHORT_RETURN_IF_ERROR(StatusOf(answers));
  for (size_t i = 0; i < connections_.size(); ++i) {
    absl::string_view text = answers[i];
    int rank = 0;
    if (!absl::ConsumePrefix(&text, "hello ") || !absl::SimpleAtoi(text, &rank)) {
      return absl::InternalError(absl::StrCat("a member says \"", answers[i], "\""));
    }
    connections_[i].rank = rank;
  }
  std::sort(connections_.begin(), connections_.end(),
            [](const Connection& a, const Connection& b) { return *a.rank < *b.rank; });
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MemberProcesses::Answers(absl::Time deadline) {
  std::vector<std::string> answers(connections_.size());
  std::vector<int> waiting;
  for (size_t i = 0; i < connections_.size(); ++i) waiting.push_back(static_cast<int>(i));
  while (!waiting.empty()) {
    std::vector<int> descriptors;
    for (int connection : waiting) descriptors.push_back(connections_[connection].control.fd());
    COHORT_ASSIGN_OR_RETURN(const int ready, AwaitReadable(descriptors, deadline));
    const int connection = waiting[ready];
    absl::StatusOr<std::string> answer = connections_[connection].control.Receive();
    if (!answer.ok()) return absl::UnavailableError("a member has ended");
    answers[connection] = *std::move(answer);
    waiting.erase(waiting.begin() + ready);
  }
  return answers;
}

absl::StatusOr<std::vector<std::string>> MemberProcesses::Ask(const std::string& text) {
  if (connections_.empty()) return absl::UnavailableError("not started");
  absl::Status sent;
  for (Connection& connection : connections_) sent.Update(connection.control.Send(text));
  if (!sent.ok()) {
    Kill();
    return sent;
  }
  absl::StatusOr<std::vector<std::string>> answers = Answers(absl::Now() + options_.deadline);
  if (!answers.ok()) Kill();
  return answers;
}

absl::Status MemberProcesses::Prepare(int id, const Work& work) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                          Ask(absl::StrCat("prepare ", id, " ", FormatWork(work))));
  return StatusOf(answers);
}

absl::StatusOr<double> MemberProcesses::Run(int id, int64_t iterations) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                          Ask(absl::StrCat("run ", id, " ", iterations)));
  COHORT_RETURN_IF_ERROR(StatusOf(answers));
  double slowest = 0;
  for (const std::string& answer : answers) {
    absl::string_view text = answer;
    double seconds = 0;
    if (!absl::ConsumePrefix(&text, "ok ") || !absl::SimpleAtod(text, &seconds)) {
      return absl::InternalError(absl::StrCat("a member says \"", answer, "\""));
    }
    slowest = std::max(slowest, seconds);
  }
  return slowest / static_cast<double>(iterations);
}

absl::Status MemberProcesses::Sample(int id, int64_t iterations, const std::string& series) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                          Ask(absl::StrCat("sample ", id, " ", iterations, " ", series)));
  return StatusOf(answers);
}

absl::StatusOr<CallTimes> MemberProcesses::TimesOf(int id, const std::string& series) {
  COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> answers,
                          Ask(absl::StrCat("times ", id, " ", series)));
  COHORT_RETURN_IF_ERROR(StatusOf(answers));
  CallTimes greatest;
  for (const std::string& answer : answers) {
    const std::vector<std::string> words = absl::StrSplit(answer, ' ');
    CallTimes times;
    if (words.size() != 5 || !absl::SimpleAtod(words[1], &times.median_us) ||
        !absl::SimpleAtod(words[2], &times.p99_us) || !absl::SimpleAtod(words[3], &times.mean_us) ||
        !absl::SimpleAtoi(words[4], &times.calls)) {
      return absl::InternalError(absl::StrCat("a member says \"", answer, "\""));
    }
    greatest.median_us = std::max(greatest.median_us, times.median_us);
    greatest.p99_us = std::max(greatest.p99_us, times.p99_us);
    greatest.mean_us = std::max(greatest.mean_us, times.mean_us);
    greatest.calls = std::max(greatest.calls, times.calls);
  }
  return greatest;
}

absl::Status MemberProcesses::Forget(int id) { return Ask(absl::StrCat("forget ", id)).status(); }

void MemberProcesses::End() {
  if (connections_.empty()) return Kill();
  for (Connection& connection : connections_) connection.control.Send("quit").IgnoreError();
  const absl::Time deadline = absl::Now() + kTimeout;
  for (Connection& connection : connections_) {
    pollfd end = {connection.control.fd(), POLLIN, 0};
    do {
      const int64_t left = absl::ToInt64Milliseconds(deadline - absl::Now());
      if (left <= 0 || poll(&end, 1, static_cast<int>(left)) == 0) break;
    } while (connection.control.Receive().ok());
  }
  // Members that have closed their sides still have to end their processes, and so do the programs
  // that started them.
  for (const auto& process : processes_) {
    process->Wait(std::max(deadline - absl::Now(), absl::Milliseconds(1))).IgnoreError();
  }
  Kill();
}

void MemberProcesses::Kill() {
  for (Connection& connection : connections_) {
    if (connection.pidfd < 0) continue;
    pidfd_send_signal(connection.pidfd, SIGKILL, nullptr, 0);
    close(connection.pidfd);
  }
  connections_.clear();
  processes_.clear();
}

}  // namespace cohort::benchmark
