// One tensor from one rank to another.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_SEND_RECEIVE_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_SEND_RECEIVE_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/parallel/collectives/results.h"
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
  // Type, shape and whether on the host; absent: what comes.
  std::optional<TensorSpec> expected;
  int channel = 0;
  client::CallOptions call;
};

// Type and shape travel with the tensor. Rules, and errors besides, are those of Messages: to
// itself no rank sends. Seed: send.
absl::Status Send(Messages& messages, const Tensor& tensor, const SendOptions& options = {});

// A new tensor of the group's memory, contiguous; on this rank's GPU if the sender's was on its.
// Errors besides: INVALID_ARGUMENT (what came is not what is expected, and is gone: names both; the
// sender hears it too, if it still waits). Seed: recv.
absl::StatusOr<Tensor> Receive(Messages& messages, const ReceiveOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_SEND_RECEIVE_H_
