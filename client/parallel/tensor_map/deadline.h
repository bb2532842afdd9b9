// One timeout for all calls that one call makes.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_DEADLINE_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_DEADLINE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "base/clock.h"
#include "client/collective/group.h"

namespace cohort::parallel {

class Deadline {
 public:
  explicit Deadline(const client::CallOptions& call) : call_(call) {
    if (call_.timeout.has_value()) end_ = Clock::Steady().Now() + *call_.timeout;
  }

  // The time left, but not less than `least`; without a timeout each call has the group's. For
  // calls that block.
  client::CallOptions Left(absl::Duration least = absl::ZeroDuration()) const {
    client::CallOptions options;
    if (call_.timeout.has_value()) {
      options.timeout = std::max(end_ - Clock::Steady().Now(), least);
    }
    return options;
  }
  // The same for tensors on a GPU, on the caller's stream if there is one.
  client::CallOptions LeftOnGpu() const {
    client::CallOptions options = Left();
    options.stream = call_.stream;
    return options;
  }
  client::CallOptions LeftFor(Device device) const {
    return device.is_cuda() ? LeftOnGpu() : Left();
  }

 private:
  const client::CallOptions call_;
  Instant end_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_DEADLINE_H_
