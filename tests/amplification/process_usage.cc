#include "tests/amplification/process_usage.h"

#include <poll.h>
#include <time.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"

namespace cohort::amplification {
namespace {

constexpr int kQuietMs = 2;
constexpr int kQuietLooks = 2;
// Timers of an idle daemon take less.
constexpr absl::Duration kIdle = absl::Microseconds(150);
// Clears the peak of the resident bytes (proc(5), clear_refs).
constexpr char kClearPeak[] = "5";

// Whether a thread of the process runs, or would if it had a processor.
bool Runs(pid_t pid) {
  std::error_code error;
  for (const auto& task :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), error)) {
    std::ifstream file(task.path() / "stat");
    std::string text;
    std::getline(file, text);
    // "PID (NAME) STATE ...": a name may have any characters.
    const size_t name_end = text.rfind(')');
    if (name_end != std::string::npos && text.substr(name_end + 2, 1) == "R") return true;
  }
  return false;
}

std::string PathOf(pid_t pid, const char* file) { return absl::StrCat("/proc/", pid, "/", file); }

// A line such as "VmHWM:    1234 kB". A process that has ended has none.
int64_t StatusBytes(pid_t pid, const std::string& name) {
  std::ifstream status(PathOf(pid, "status"));
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, name)) continue;
    const std::vector<std::string> words =
        absl::StrSplit(line, absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t kilobytes = 0;
    if (words.size() >= 2 && absl::SimpleAtoi(words[1], &kilobytes)) return kilobytes << 10;
  }
  return 0;
}

}  // namespace

int64_t ProcessUsage::ResidentBytes() const { return StatusBytes(pid_, "VmRSS:"); }

int64_t ProcessUsage::PeakBytes() const { return StatusBytes(pid_, "VmHWM:"); }

void ProcessUsage::ResetPeak() const { std::ofstream(PathOf(pid_, "clear_refs")) << kClearPeak; }

absl::Duration ProcessUsage::ProcessorTime() const {
  clockid_t clock = 0;
  timespec time = {};
  if (clock_getcpuclockid(pid_, &clock) != 0 || clock_gettime(clock, &time) != 0) {
    return absl::ZeroDuration();
  }
  return absl::DurationFromTimespec(time);
}

void ProcessUsage::AwaitQuiet(absl::Duration timeout) const {
  const Instant deadline = Clock::Steady().Now() + timeout;
  absl::Duration last = ProcessorTime();
  for (int quiet = 0; quiet < kQuietLooks && Clock::Steady().Now() < deadline;) {
    poll(nullptr, 0, kQuietMs);
    const absl::Duration now = ProcessorTime();
    quiet = now - last < kIdle && !Runs(pid_) ? quiet + 1 : 0;
    last = now;
  }
}

}  // namespace cohort::amplification
