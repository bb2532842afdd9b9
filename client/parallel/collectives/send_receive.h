// One tensor from one rank to another.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_SEND_RECEIVE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_SEND_RECEIVE_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/parallel/collectives/results/result_shapes.h"
#include "client/parallel/messages/messages.h"

namespace cohort::parallel {

struct SendOptions {
  std::optional<int>
      destination;  // a rank in the group; absent: the next one, after the last the first
  int channel = 0;
  client::CallOptions call;
};

struct ReceiveOptions {
  std::optional<int>
      source;  // a rank in the group; absent: the one before, before the first the last
  // The type, shape, and whether on the host; absent: any tensor.
  std::optional<TensorSpec> expected;
  int channel = 0;
  client::CallOptions call;
};

// Sends a tensor with its type and shape. Rules and further errors are those of Messages: a rank
// does not send to itself. Source: send.
absl::Status Send(Messages& messages, const Tensor& tensor, const SendOptions& options = {});

// Returns a new contiguous tensor of the group's memory, on this rank's GPU if the sender's tensor
// was on a GPU. Errors besides: INVALID_ARGUMENT (the tensor is not the expected one and is
// dropped; names both; the sender gets the error, too, if it still waits). Source: recv.
absl::StatusOr<Tensor> Receive(Messages& messages, const ReceiveOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_SEND_RECEIVE_H_
