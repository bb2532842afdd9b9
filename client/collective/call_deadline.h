// The timeout of a call that makes several calls of a group, one after another.
#ifndef COHORT_CLIENT_COLLECTIVE_CALL_DEADLINE_H_
#define COHORT_CLIENT_COLLECTIVE_CALL_DEADLINE_H_

#include <algorithm>

#include "absl/time/time.h"
#include "base/clock.h"
#include "client/collective/group.h"

namespace cohort::client {

class CallDeadline {
 public:
  explicit CallDeadline(const CallOptions& call) : call_(call) {
    if (call_.timeout.has_value()) end_ = Clock::Steady().Now() + *call_.timeout;
  }

  bool has_stream() const { return call_.stream.has_value(); }

  // The caller's options, with the time that is left, but not less than `least`. Without a timeout
  // each call has the group's.
  CallOptions Left(absl::Duration least = absl::ZeroDuration()) const {
    CallOptions options = call_;
    if (call_.timeout.has_value()) {
      options.timeout = std::max(end_ - Clock::Steady().Now(), least);
    }
    return options;
  }
  // The same for calls that block.
  CallOptions LeftOnHost(absl::Duration least = absl::ZeroDuration()) const {
    CallOptions options = Left(least);
    options.stream.reset();
    return options;
  }
  // The caller's stream, if there is one, is for tensors on a GPU.
  CallOptions LeftFor(Device device) const { return device.is_cuda() ? Left() : LeftOnHost(); }

 private:
  const CallOptions call_;
  Instant end_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_CALL_DEADLINE_H_
