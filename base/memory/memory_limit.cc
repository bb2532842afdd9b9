#include "base/memory/memory_limit.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace cohort {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// "max", an empty file and a missing one are no limit.
int64_t ReadLimit(const std::string& path) {
  int64_t bytes = 0;
  const std::string text = ReadFile(path);
  if (!absl::SimpleAtoi(absl::StripAsciiWhitespace(text), &bytes) || bytes <= 0) return kNoLimit;
  return bytes;
}

// The smallest limit of `group` and of its parents, up to and including `mount` itself. In a
// container the mount often shows the container's own cgroup as its top, while /proc/self/cgroup
// names it by its path outside: folders that are missing are skipped.
int64_t LowestLimit(const std::string& mount, absl::string_view group, const char* file) {
  int64_t lowest = kNoLimit;
  std::string path(absl::StripSuffix(group, "/"));
  while (true) {
    lowest = std::min(lowest, ReadLimit(absl::StrCat(mount, path, "/", file)));
    if (path.empty()) return lowest;
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

int64_t ResourceLimit(int which) {
  rlimit limit;
  if (getrlimit(which, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kNoLimit;
  return limit.rlim_cur > static_cast<rlim_t>(kNoLimit) ? kNoLimit
                                                        : static_cast<int64_t>(limit.rlim_cur);
}

}  // namespace

int64_t CgroupMemoryLimitBytes(const std::string& root) {
  const std::string mounts = absl::StrCat(root, "/sys/fs/cgroup");
  int64_t lowest = kNoLimit;
  // Lines are "hierarchy:controllers:path"; version 2 is hierarchy 0 without controllers.
  const std::string lines = ReadFile(absl::StrCat(root, "/proc/self/cgroup"));
  for (absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) continue;
    if (parts[0] == "0" && parts[1].empty()) {
      lowest = std::min(lowest, LowestLimit(mounts, parts[2], "memory.max"));
      // Where both versions are mounted, version 2 lies here.
      lowest = std::min(lowest, LowestLimit(mounts + "/unified", parts[2], "memory.max"));
      continue;
    }
    for (absl::string_view controller : absl::StrSplit(parts[1], ',')) {
      if (controller != "memory") continue;
      lowest = std::min(lowest, LowestLimit(mounts + "/memory", parts[2], "memory.limit_in_bytes"));
    }
  }
  return lowest;
}

int64_t MemoryLimitBytes() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t page_bytes = sysconf(_SC_PAGESIZE);
  int64_t limit = pages > 0 && page_bytes > 0 ? pages * page_bytes : kNoLimit;
  limit = std::min(limit, CgroupMemoryLimitBytes(""));
  limit = std::min(limit, ResourceLimit(RLIMIT_AS));
  limit = std::min(limit, ResourceLimit(RLIMIT_DATA));
  return std::max<int64_t>(limit, 1);
}

}  // namespace cohort
