// What decoding needs to know besides the message.
#ifndef COHORT_COORDINATOR_SERVICE_CODEC_DECODE_CONTEXT_H_
#define COHORT_COORDINATOR_SERVICE_CODEC_DECODE_CONTEXT_H_

#include "absl/time/time.h"
#include "coordinator/core/limits.h"

namespace cohort::coordinator {

struct DecodeContext {
  Limits limits;
  // No call is parked longer, whatever it asks for.
  absl::Duration max_wait = absl::Hours(1);
  // Until the caller's gRPC deadline. A wait ends a little before it, so that the diagnosis still
  // arrives.
  absl::Duration time_left = absl::InfiniteDuration();
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_SERVICE_CODEC_DECODE_CONTEXT_H_
