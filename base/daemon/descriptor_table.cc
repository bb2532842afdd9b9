#include "base/daemon/descriptor_table.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <algorithm>

#include "base/unique_fd.h"

namespace cohort {

void MakeRoomForDescriptors() {
  constexpr rlim_t kMost = 65536;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
  // A descriptor with the highest number. Without memory for it, the table grows as it would have.
  const UniqueFd lowest(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const UniqueFd highest(
      fcntl(lowest.get(), F_DUPFD_CLOEXEC, static_cast<int>(std::min(limit.rlim_cur, kMost)) - 1));
}

}  // namespace cohort
