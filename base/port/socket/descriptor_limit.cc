#include "base/port/socket/descriptor_limit.h"

#include <dirent.h>
#include <sys/resource.h>

#include <algorithm>

namespace cohort {
namespace {

int OpenDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  if (folder == nullptr) return 0;
  int count = -3;  // its own, "." and ".."
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return std::max(count, 0);
}

}  // namespace

int DescriptorsForConnections(int fewest, int most) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  const int all = static_cast<int>(std::min<rlim_t>(limit.rlim_cur, static_cast<rlim_t>(most)));
  const int reserve = std::max(16, all / 16);
  return std::max(all - reserve - OpenDescriptors(), fewest);
}

}  // namespace cohort
