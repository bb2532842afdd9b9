#include "base/threads/thread.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <fstream>
#include <limits>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort {
namespace {

// Empty where the file is missing or no descriptor is left to read it.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

// One system call: the folder has a link for each thread, and two more. -1: /proc is missing.
int64_t ThreadsOfProcess() {
  struct stat folder = {};
  if (stat("/proc/self/task", &folder) != 0) return -1;
  return static_cast<int64_t>(folder.st_nlink) - 2;
}

std::string Limit(int resource, absl::string_view name) {
  rlimit limit = {};
  if (getrlimit(static_cast<__rlimit_resource_t>(resource), &limit) != 0) return "";
  return absl::StrCat(name, " ",
                      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : absl::StrCat(limit.rlim_cur));
}

struct PidsOfCgroup {
  std::string folder;  // empty: no limit
  int64_t max = std::numeric_limits<int64_t>::max();
};

// Both versions of cgroups; a container sees its own cgroup as the root.
PidsOfCgroup FindPidsOfCgroup() {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t path_at = line.rfind(':');
    if (path_at == std::string::npos) continue;
    const bool v2 = absl::StartsWith(line, "0::");
    if (!v2 && !absl::StrContains(line, ":pids:")) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/pids";
    for (const std::string& folder : {root + line.substr(path_at + 1), root}) {
      PidsOfCgroup found;
      if (absl::SimpleAtoi(FirstLine(folder + "/pids.max"), &found.max)) {
        found.folder = folder;
        return found;
      }
    }
  }
  return {};
}

// Where the limit is does not change; its value may, which a restart sees.
const PidsOfCgroup& CgroupOfProcess() {
  static const PidsOfCgroup* const cgroup = new PidsOfCgroup(FindPidsOfCgroup());
  return *cgroup;
}

int64_t PidsInUse(const PidsOfCgroup& cgroup) {
  int64_t in_use = 0;
  (void)absl::SimpleAtoi(FirstLine(cgroup.folder + "/pids.current"), &in_use);
  return in_use;
}

std::string DescribeCgroup() {
  const PidsOfCgroup& cgroup = CgroupOfProcess();
  if (cgroup.folder.empty()) return "";
  return absl::StrCat(", cgroup pids.max ", cgroup.max, " (", PidsInUse(cgroup), " in use)");
}

// The kernel does not count root's threads.
int64_t UserLimit() {
  rlimit limit = {};
  if (getuid() == 0 || getrlimit(RLIMIT_NPROC, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) {
    return std::numeric_limits<int64_t>::max();
  }
  return static_cast<int64_t>(limit.rlim_cur);
}

absl::Status Refused(const std::string& name, absl::string_view why) {
  const int64_t threads = ThreadsOfProcess();
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot start thread ", name, ": ", why, "; the process has ",
      threads < 0 ? "an unknown number of" : absl::StrCat(threads), " threads; limits: ",
      Limit(RLIMIT_NPROC, "RLIMIT_NPROC"), " for user ", geteuid(), ", ",
      Limit(RLIMIT_AS, "RLIMIT_AS"), DescribeCgroup(), ", kernel.threads-max ",
      FirstLine("/proc/sys/kernel/threads-max")));
}

std::atomic<int64_t> reserved_for_calls{0};

}  // namespace

void NameThisThread(const std::string& name) {
  constexpr size_t kMaxName = 15;
  pthread_setname_np(pthread_self(), name.substr(0, kMaxName).c_str());
}

absl::Status ThreadRefused(const std::string& name, const std::system_error& error) {
  return Refused(name, error.code().message());
}

absl::Status StartDetached(const std::string& name, void* (*run)(void*), void* argument) {
  if (absl::Status left = CheckThreadsLeft(name); !left.ok()) return left;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, run, argument);
  pthread_attr_destroy(&attributes);
  if (error == 0) return absl::OkStatus();
  return ThreadRefused(name, std::system_error(error, std::generic_category()));
}

int64_t ThreadLimit() { return std::min(UserLimit(), CgroupOfProcess().max); }

int64_t ThreadsLeftToGrpc() {
  constexpr int64_t kFewest = 16;
  constexpr int64_t kForEachProcessor = 4;  // gRPC's executors have as many
  static const int64_t processors = std::max<int64_t>(std::thread::hardware_concurrency(), 1);
  const int64_t wanted = std::max(kFewest, kForEachProcessor * processors);
  return std::min(wanted, ThreadLimit() / 4) + reserved_for_calls.load(std::memory_order_relaxed);
}

void ReserveThreadsForCalls(int64_t for_calls) {
  reserved_for_calls.store(for_calls, std::memory_order_relaxed);
}

absl::Status CheckThreadsLeft(const std::string& name) {
  const int64_t of_user = UserLimit();
  const PidsOfCgroup& cgroup = CgroupOfProcess();
  if (of_user == std::numeric_limits<int64_t>::max() && cgroup.folder.empty()) {
    return absl::OkStatus();
  }
  const int64_t kept = ThreadsLeftToGrpc();
  const bool user_full = ThreadsOfProcess() >= of_user - kept;
  const bool cgroup_full = !cgroup.folder.empty() && PidsInUse(cgroup) >= cgroup.max - kept;
  if (!user_full && !cgroup_full) return absl::OkStatus();
  return Refused(name, absl::StrCat(kept, " threads are left, which gRPC may need"));
}

}  // namespace cohort
