// The collectives of a group as functions that return their result: a new, contiguous tensor of the
// group's memory, on the input's device. They write no given tensor, unless `in_place` asks for it.
// No result shares memory with another result or with a group's scratch.
//
// All ranks of the group call the same functions in the same order, with the same options. A call
// blocks as client::Group says, at most for its timeout. Inputs have any strides and any of the 17
// types, may be empty, and lie on the host or on the rank's GPU, on all ranks alike. A group of one
// rank returns copies of its inputs.
//
// If the arguments of one rank are wrong, all ranks get INVALID_ARGUMENT before anything moves; the
// text names the rank and its arguments, and the group stays usable. On streams only that rank gets
// the error. In a broadcast of a few KiB, ranks that need not wait get it from a later call: see
// client::Group. A rank without memory for its result gets RESOURCE_EXHAUSTED, and the others get
// INVALID_ARGUMENT, which names it. All other errors are those of client::Group.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_COLLECTIVES_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_COLLECTIVES_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/collective/reduction.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/results/result_buffers.h"
#include "client/parallel/collectives/results/result_shapes.h"

namespace cohort::parallel {

// `call`: timeout and stream. `buffers`: the memory for results; it outlives the call. Null: the
// group's memory.

struct AllReduceOptions {
  Reduction reduction;
  bool in_place = false;  // the result is the input
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct ReduceOptions {
  int root = 0;  // a rank in the group, like all roots
  Reduction reduction;
  bool in_place = false;  // the root's result is its input
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct BroadcastOptions {
  int root = 0;
  bool in_place = false;  // the result is the given tensor
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct AllGatherOptions {
  int dim = -1;  // -n..n-1
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct AllGatherVOptions {
  int dim = 0;
  // By rank, the extents along `dim`. All ranks give the sizes, or none gives them: then the ranks
  // exchange their extents first.
  std::optional<Sizes> sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct ReduceScatterOptions {
  int dim = -1;
  Reduction reduction;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct ReduceScatterVOptions {
  int dim = -1;
  // By rank, its part along `dim`; absent: equal parts, without a remainder.
  std::optional<Sizes> sizes;
  Reduction reduction;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct GatherOptions {
  int root = 0;
  int dim = -1;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct GatherVOptions {
  int root = 0;
  int dim = -1;
  std::optional<Sizes> sizes;  // see AllGatherVOptions
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct ScatterOptions {
  int root = 0;
  int dim = 0;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct AllToAllOptions {
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct AllToAllVOptions {
  // By rank, the rows that go to it, and the rows that come from it. Absent: the input's rows in
  // equal parts, without a remainder. Each rank gives its own numbers, and they are compared: a
  // rank expects the number that the other one sends.
  std::optional<Sizes> input_sizes;
  std::optional<Sizes> output_sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// --- Every rank has the same part.

// The reduction of all inputs, with their shape; the same bits on all ranks.
absl::StatusOr<Tensor> AllReduce(client::Group& group, const Tensor& input,
                                 const AllReduceOptions& options = {});
// The same at the root; nothing on other ranks, whose inputs stay unchanged.
absl::StatusOr<std::optional<Tensor>> Reduce(client::Group& group, const Tensor& input,
                                             const ReduceOptions& options = {});
// The root's tensor, on all ranks. The others give a tensor of its type and shape, whose elements
// do not matter.
absl::StatusOr<Tensor> Broadcast(client::Group& group, const Tensor& tensor,
                                 const BroadcastOptions& options = {});
// The same for a rank that is not the root and has no such tensor.
absl::StatusOr<Tensor> Broadcast(client::Group& group, const TensorSpec& spec,
                                 const BroadcastOptions& options = {});
// All inputs concatenated along `dim`, by rank: its extent is size() times the input's.
absl::StatusOr<Tensor> AllGather(client::Group& group, const Tensor& input,
                                 const AllGatherOptions& options = {});
// This rank's part along `dim` of the reduction of all inputs: its extent is the input's divided by
// size(), without a remainder.
absl::StatusOr<Tensor> ReduceScatter(client::Group& group, const Tensor& input,
                                     const ReduceScatterOptions& options = {});
// At the root like AllGather; nothing on other ranks.
absl::StatusOr<std::optional<Tensor>> Gather(client::Group& group, const Tensor& input,
                                             const GatherOptions& options = {});
// Exchanges parts of the first dimension, whose extent is a multiple of size(). Part r of the
// result is part rank() of rank r's input.
absl::StatusOr<Tensor> AllToAll(client::Group& group, const Tensor& input,
                                const AllToAllOptions& options = {});

// --- From one rank to all, a part each. The root calls one of the first two, the others the third.

// Part rank() along `dim` of `whole`.
absl::StatusOr<Tensor> Scatter(client::Group& group, const Tensor& whole,
                               const ScatterOptions& options = {});
// `parts` has one part for each rank, all of one type and shape; returns the one of this rank. The
// parts are joined along `dim`, which is the same on all ranks.
absl::StatusOr<Tensor> Scatter(client::Group& group, absl::Span<const Tensor> parts,
                               const ScatterOptions& options = {});
// Receives this rank's part from the root; `part` is its type, shape and place.
absl::StatusOr<Tensor> Scatter(client::Group& group, const TensorSpec& part,
                               const ScatterOptions& options = {});

// --- Ragged: extents along `dim` differ from rank to rank, and may be 0.

// All inputs concatenated along `dim`: its extent is the sum of sizes.
absl::StatusOr<Tensor> AllGatherV(client::Group& group, const Tensor& input,
                                  const AllGatherVOptions& options = {});
// Gathers several tensors, which have the same extent along `dim` and may differ otherwise. Returns
// a result for each. All ranks give the same number of tensors, which is compared.
absl::StatusOr<std::vector<Tensor>> AllGatherV(client::Group& group,
                                               absl::Span<const Tensor> inputs,
                                               const AllGatherVOptions& options = {});
// This rank's part, sizes[rank()] along `dim`, of the reduction of all inputs, whose extent there
// is the sum. On the host it always adds in the order of ranks: the same bits each time, whatever
// the sizes and paths. On GPUs NCCL has its own order.
absl::StatusOr<Tensor> ReduceScatterV(client::Group& group, const Tensor& input,
                                      const ReduceScatterVOptions& options = {});
// At the root like AllGatherV; nothing on other ranks.
absl::StatusOr<std::optional<Tensor>> GatherV(client::Group& group, const Tensor& input,
                                              const GatherVOptions& options = {});
// Exchanges rows of the first dimension. The result has output_sizes[r] rows of each rank r, by
// rank.
absl::StatusOr<Tensor> AllToAllV(client::Group& group, const Tensor& input,
                                 const AllToAllVOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_COLLECTIVES_H_
