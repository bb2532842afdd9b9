#include "base/rpc/grpc_deadline.h"

#include <algorithm>

namespace cohort {

gpr_timespec GrpcDeadline(absl::Duration from_now) {
  const absl::Duration bounded =
      std::clamp(from_now, absl::ZeroDuration(), absl::Hours(24 * 365));
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                      gpr_time_from_nanos(absl::ToInt64Nanoseconds(bounded), GPR_TIMESPAN));
}

absl::Duration TimeLeft(gpr_timespec deadline) {
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return absl::InfiniteDuration();
  }
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

}  // namespace cohort
