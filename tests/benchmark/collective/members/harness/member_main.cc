#include "tests/benchmark/collective/members/harness/member_main.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <map>
#include <thread>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "tests/benchmark/collective/members/harness/latencies.h"
#include "tests/benchmark/collective/members/harness/pattern.h"
#include "tests/benchmark/collective/processes/control_socket.h"

namespace cohort::benchmark {
namespace {

// Sleeps until the driver is gone, and then ends the process, whose thread may be waiting for a
// rank that has ended.
class Watch {
 public:
  explicit Watch(int fd) : fd_(fd), thread_([this] { Run(); }) {}
  // Hangs up.
  ~Watch() {
    over_ = true;
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
  }

 private:
  void Run() {
    pollfd driver = {fd_, POLLRDHUP, 0};
    while (poll(&driver, 1, -1) <= 0) {
    }
    if (!over_) _exit(1);
  }

  const int fd_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

class CommandLoop {
 public:
  CommandLoop(Member& member, int members) : member_(member), members_(members) {}

  // "ok", "ok SECONDS", "unimplemented WHY" or "error WHY".
  std::string Answer(const std::string& command) {
    const absl::StatusOr<std::string> result = Do(command);
    if (result.ok()) return result->empty() ? "ok" : absl::StrCat("ok ", *result);
    return absl::StrCat(absl::IsUnimplemented(result.status()) ? "unimplemented " : "error ",
                        result.status().ToString());
  }

 private:
  absl::StatusOr<std::string> Do(const std::string& command) {
    const std::vector<std::string> words = absl::StrSplit(command, absl::MaxSplits(' ', 2));
    int id = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &id)) {
      return absl::InvalidArgumentError(absl::StrCat("not a command: \"", command, "\""));
    }
    if (words[0] == "forget") {
      prepared_.erase(id);
      times_.erase(id);
      return std::string();
    }
    if (words.size() == 3 && words[0] == "prepare") {
      COHORT_ASSIGN_OR_RETURN(const Work work, ParseWork(words[2]));
      COHORT_RETURN_IF_ERROR(Prepare(id, work));
      return std::string();
    }
    int64_t iterations = 0;
    if (words.size() == 3 && words[0] == "run" && absl::SimpleAtoi(words[2], &iterations)) {
      COHORT_ASSIGN_OR_RETURN(const double seconds, Run(id, iterations));
      return absl::StrCat(seconds);
    }
    if (words.size() == 3 && words[0] == "times") return TimesOf(id, words[2]);
    const std::vector<std::string> more =
        absl::StrSplit(words.size() == 3 ? words[2] : "", absl::MaxSplits(' ', 1));
    if (words[0] == "sample" && more.size() == 2 && absl::SimpleAtoi(more[0], &iterations)) {
      COHORT_RETURN_IF_ERROR(Sample(id, iterations, more[1]));
      return std::string();
    }
    return absl::InvalidArgumentError(absl::StrCat("not a command: \"", command, "\""));
  }

  // Prepares the work and verifies its result.
  absl::Status Prepare(int id, const Work& work) {
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Prepared> prepared, member_.Prepare(work));
    FillInput(work, member_.rank(), members_, prepared->input());
    SpoilOutput(work, member_.rank(), members_, prepared->output());
    // Some implementations write into the memory of other ranks.
    COHORT_RETURN_IF_ERROR(member_.Barrier());
    COHORT_RETURN_IF_ERROR(prepared->Run(1));
    COHORT_RETURN_IF_ERROR(CheckOutput(work, member_.rank(), members_, prepared->output()));
    prepared_[id] = std::move(prepared);
    return absl::OkStatus();
  }

  absl::StatusOr<double> Run(int id, int64_t iterations) {
    const auto found = prepared_.find(id);
    if (found == prepared_.end()) return absl::NotFoundError("not prepared");
    Prepared& prepared = *found->second;
    // Warms the caches, which other members have used since.
    COHORT_RETURN_IF_ERROR(prepared.Run(std::max<int64_t>(1, iterations / 16)));
    COHORT_RETURN_IF_ERROR(member_.Barrier());
    const auto start = std::chrono::steady_clock::now();
    COHORT_RETURN_IF_ERROR(prepared.Run(iterations));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  // Reads the clock once for each call; the reading is part of the call's time.
  absl::Status Sample(int id, int64_t iterations, const std::string& series) {
    const auto found = prepared_.find(id);
    if (found == prepared_.end()) return absl::NotFoundError("not prepared");
    Prepared& prepared = *found->second;
    Latencies& times = times_[id][series];
    COHORT_RETURN_IF_ERROR(prepared.Run(std::max<int64_t>(1, iterations / 16)));
    COHORT_RETURN_IF_ERROR(member_.Barrier());
    auto last = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < iterations; ++i) {
      COHORT_RETURN_IF_ERROR(prepared.Run(1));
      const auto now = std::chrono::steady_clock::now();
      times.Add(std::chrono::duration_cast<std::chrono::nanoseconds>(now - last).count());
      last = now;
    }
    return absl::OkStatus();
  }

  // "MEDIAN P99 MEAN CALLS", in microseconds.
  absl::StatusOr<std::string> TimesOf(int id, const std::string& series) {
    const Latencies& times = times_[id][series];
    return absl::StrCat(times.QuantileNs(0.5) / 1e3, " ", times.QuantileNs(0.99) / 1e3, " ",
                        times.MeanNs() / 1e3, " ", times.calls());
  }

  Member& member_;
  const int members_;
  std::map<int, std::unique_ptr<Prepared>> prepared_;
  std::map<int, std::map<std::string, Latencies>> times_;  // of single calls, by series
};

absl::Status Serve(ControlSocket& control, const MemberOptions& options,
                   const MemberFactory& factory) {
  absl::StatusOr<std::unique_ptr<Member>> member = factory(options);
  if (!member.ok()) {
    control.Send(absl::StrCat("error ", member.status().ToString())).IgnoreError();
    return member.status();
  }
  COHORT_RETURN_IF_ERROR(control.Send(absl::StrCat("hello ", (*member)->rank())));
  CommandLoop loop(**member, options.members);
  while (true) {
    COHORT_ASSIGN_OR_RETURN(const std::string command, control.Receive());
    if (command == "quit") return absl::OkStatus();
    COHORT_RETURN_IF_ERROR(control.Send(loop.Answer(command)));
  }
}

}  // namespace

int MemberMain(int argc, char** argv, const MemberFactory& factory) {
  MemberOptions options;
  std::string path;
  CLI::App app("A member of the collective benchmark");
  app.add_option("--control", path, "where the driver listens")->required();
  app.add_option("--members", options.members, "how many there are")->required();
  app.add_option("--rank", options.rank, "which of them this is");
  app.add_option("--folder", options.folder, "shared by the members");
  app.add_option("--address", options.address, "this rank's, where others are on other hosts");
  CLI11_PARSE(app, argc, argv);

  absl::StatusOr<ControlSocket> control = ControlSocket::Connect(path);
  if (!control.ok()) {
    std::fprintf(stderr, "%s\n", control.status().ToString().c_str());
    return 1;
  }
  Watch watch(control->fd());
  const absl::Status status = Serve(*control, options, factory);
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  _exit(1);  // not through the end of a group that others may no longer be in
}

}  // namespace cohort::benchmark
