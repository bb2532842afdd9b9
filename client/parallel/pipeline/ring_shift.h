// Tensors passed on around a ring of ranks.
#ifndef COHORT_CLIENT_PARALLEL_PIPELINE_RING_SHIFT_H_
#define COHORT_CLIENT_PARALLEL_PIPELINE_RING_SHIFT_H_

#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"

namespace cohort::parallel {

inline constexpr int kRingChannel = 16;

// ColossalAI's ring_forward, by any distance. Sends `tensor` to the rank that is `distance`
// further, counted around the group, and answers what the rank that is as far behind has sent: of
// its type and shape, whatever this rank's own are, in new memory where it was sent from. A
// negative distance goes the other way; a multiple of the group's size, and a group of one rank,
// give a copy of `tensor`.
//
// All ranks of the group call it, with the same distance. Blocks. Errors: those of Messages. A
// tensor that cannot be sent is INVALID_ARGUMENT, also for the rank that should receive it.
absl::StatusOr<Tensor> RingShift(Messages& messages, const Tensor& tensor, int distance = 1,
                                 const client::CallOptions& options = {});
// Of a group of which no Messages are in use.
absl::StatusOr<Tensor> RingShift(client::Group& group, const Tensor& tensor, int distance = 1,
                                 const client::CallOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_PIPELINE_RING_SHIFT_H_
