// Tensors passed on around a ring of ranks.
#ifndef COHORT_CLIENT_PARALLEL_PIPELINE_RING_SHIFT_H_
#define COHORT_CLIENT_PARALLEL_PIPELINE_RING_SHIFT_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"

namespace cohort::parallel {

inline constexpr int kRingChannel = 16;

// ColossalAI's ring_forward, by any distance. Sends `tensor` to the rank that is `distance` further
// around the group. Returns the tensor that the rank as far behind has sent, with that tensor's
// type and shape, in new memory of the same place (host or GPU). A negative distance goes the other
// way. If the distance is a multiple of the group's size, or the group has one rank, it returns a
// copy of `tensor`.
//
// All ranks of the group call it, with the same distance. It blocks. Errors: those of Messages. A
// tensor that cannot be sent is INVALID_ARGUMENT, for its receiver, too. If a tensor was not sent
// or was refused, its sender drops the tensor that it receives, and the next call is not affected.
absl::StatusOr<Tensor> RingShift(Messages& messages, const Tensor& tensor, int distance = 1,
                                 const client::CallOptions& options = {});
// For a group without a Messages object in use.
absl::StatusOr<Tensor> RingShift(client::Group& group, const Tensor& tensor, int distance = 1,
                                 const client::CallOptions& options = {});

// Fails RingShift on the rank that is `distance` further, because this rank has no tensor to send.
// This rank calls it in place of RingShift. The other rank gets `why`; this rank drops the tensor
// that it receives, and returns `why`. Blocks as RingShift does.
absl::Status FailRingShift(Messages& messages, const absl::Status& why, int distance = 1,
                           const client::CallOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_PIPELINE_RING_SHIFT_H_
