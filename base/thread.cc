#include "base/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace cohort {
namespace {

// Empty where the file is missing or no descriptor is left to read it.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::string ThreadsOfProcess() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    absl::string_view rest = line;
    if (absl::ConsumePrefix(&rest, "Threads:")) {
      return std::string(absl::StripAsciiWhitespace(rest));
    }
  }
  return "an unknown number of";
}

std::string Limit(int resource, absl::string_view name) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return "";
  return absl::StrCat(name, " ",
                      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : absl::StrCat(limit.rlim_cur));
}

// Both versions of cgroups; a container sees its own cgroup as the root.
std::string PidsOfCgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t path_at = line.rfind(':');
    if (path_at == std::string::npos) continue;
    const bool v2 = absl::StartsWith(line, "0::");
    if (!v2 && !absl::StrContains(line, ":pids:")) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
    for (const std::string& folder : {root + line.substr(path_at + 1), root}) {
      const std::string max = FirstLine(folder + "/pids.max");
      if (max.empty() || max == "max") continue;
      return absl::StrCat(", cgroup pids.max ", max, " (", FirstLine(folder + "/pids.current"),
                          " in use)");
    }
  }
  return "";
}

}  // namespace

void NameThisThread(const std::string& name) {
  constexpr size_t kMaxName = 15;
  pthread_setname_np(pthread_self(), name.substr(0, kMaxName).c_str());
}

absl::Status ThreadRefused(const std::string& name, const std::system_error& error) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot start thread ", name, ": ", error.code().message(), "; the process has ",
      ThreadsOfProcess(), " threads; limits: ", Limit(RLIMIT_NPROC, "RLIMIT_NPROC"), " for user ",
      geteuid(), ", ", Limit(RLIMIT_AS, "RLIMIT_AS"), PidsOfCgroup(), ", kernel.threads-max ",
      FirstLine("/proc/sys/kernel/threads-max")));
}

}  // namespace cohort
