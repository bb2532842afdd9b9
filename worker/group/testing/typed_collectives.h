// The collectives of TensorCollectives with typed arguments, like those of client::Group.
#ifndef COHORT_WORKER_GROUP_TESTING_TYPED_COLLECTIVES_H_
#define COHORT_WORKER_GROUP_TESTING_TYPED_COLLECTIVES_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/collective/collective_call.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "worker/group/collectives/tensor_collectives.h"

namespace cohort::worker {

inline absl::Status AllReduce(TensorCollectives& collectives, const Tensor& input,
                              const Tensor& output, const Reduction& reduction, Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kAllReduce, input, output);
  call.reduction = reduction;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status AllReduceCoalesced(TensorCollectives& collectives,
                                       absl::Span<const Tensor> inputs,
                                       absl::Span<const Tensor> outputs, const Reduction& reduction,
                                       Instant deadline) {
  const Tensor none;
  const Tensor& input = inputs.empty() ? none : inputs[0];
  const Tensor& output = outputs.empty() ? none : outputs[0];
  CollectiveCall call = MakeCall(Collective::kAllReduceCoalesced, input, output);
  call.inputs = inputs;
  call.outputs = outputs;
  call.reduction = reduction;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status Reduce(TensorCollectives& collectives, const Tensor& input,
                           const Tensor& output, const Reduction& reduction, int root,
                           Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kReduce, input, output);
  call.reduction = reduction;
  call.root = root;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status Broadcast(TensorCollectives& collectives, const Tensor& tensor, int root,
                              Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kBroadcast, tensor, tensor);
  call.root = root;
  return collectives.Run(call, tensor, tensor, deadline);
}
inline absl::Status AllGather(TensorCollectives& collectives, const Tensor& input,
                              const Tensor& output, int dim, Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kAllGather, input, output);
  call.dim = dim;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status ReduceScatter(TensorCollectives& collectives, const Tensor& input,
                                  const Tensor& output, int dim, const Reduction& reduction,
                                  Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kReduceScatter, input, output);
  call.dim = dim;
  call.reduction = reduction;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status AllToAll(TensorCollectives& collectives, const Tensor& input,
                             const Tensor& output, Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kAllToAll, input, output);
  call.dim = 0;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status Gather(TensorCollectives& collectives, const Tensor& input,
                           const Tensor& output, int dim, int root, Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kGather, input, output);
  call.dim = dim;
  call.root = root;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status Scatter(TensorCollectives& collectives, const Tensor& input,
                            const Tensor& output, int dim, int root, Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kScatter, input, output);
  call.dim = dim;
  call.root = root;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status AllGatherV(TensorCollectives& collectives, const Tensor& input,
                               const Tensor& output, int dim, absl::Span<const int64_t> sizes,
                               Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kAllGatherV, input, output);
  call.dim = dim;
  call.sizes = sizes;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status ReduceScatterV(TensorCollectives& collectives, const Tensor& input,
                                   const Tensor& output, int dim, absl::Span<const int64_t> sizes,
                                   const Reduction& reduction, Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kReduceScatterV, input, output);
  call.dim = dim;
  call.sizes = sizes;
  call.reduction = reduction;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status GatherV(TensorCollectives& collectives, const Tensor& input,
                            const Tensor& output, int dim, absl::Span<const int64_t> sizes,
                            int root, Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kGatherV, input, output);
  call.dim = dim;
  call.sizes = sizes;
  call.root = root;
  return collectives.Run(call, input, output, deadline);
}
inline absl::Status AllToAllV(TensorCollectives& collectives, const Tensor& input,
                              absl::Span<const int64_t> input_sizes, const Tensor& output,
                              absl::Span<const int64_t> output_sizes, Instant deadline) {
  CollectiveCall call = MakeCall(Collective::kAllToAllV, input, output);
  call.dim = 0;
  call.sizes = input_sizes;
  call.output_sizes = output_sizes;
  return collectives.Run(call, input, output, deadline);
}
inline absl::StatusOr<client::Sizes> ExchangeSizes(TensorCollectives& collectives, int64_t own,
                                                   Instant deadline) {
  client::Sizes sizes(static_cast<size_t>(collectives.size()));
  const Tensor input(&own, DataType::kI64, {1});
  const Tensor output(sizes.data(), DataType::kI64, {collectives.size()});
  const absl::Status status =
      collectives.Run(MakeCall(Collective::kExchangeSizes, input, output), input, output, deadline);
  if (!status.ok()) return status;
  return sizes;
}
inline absl::Status Barrier(TensorCollectives& collectives, Instant deadline) {
  return collectives.Run(CollectiveCall(), Tensor(), Tensor(), deadline);
}

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_TYPED_COLLECTIVES_H_
