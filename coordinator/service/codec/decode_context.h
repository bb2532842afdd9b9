// The parameters of decoding besides the message.
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_DECODE_CONTEXT_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_DECODE_CONTEXT_H_

#include "absl/time/time.h"
#include "coordinator/core/interface/limits.h"

namespace cohort::coordinator {

struct DecodeContext {
  Limits limits;
  // The longest time that a call is parked, whatever its `wait`.
  absl::Duration max_wait = absl::Hours(1);
  // The time to the caller's gRPC deadline. A wait ends a little before it, so that the diagnosis
  // still arrives.
  absl::Duration time_left = absl::InfiniteDuration();
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_DECODE_CONTEXT_H_
