// The tensor verbs of a group as functions that return their result: a new tensor of the group's
// memory, contiguous, on the input's device. Nothing that was given is written, unless it is asked
// for with `in_place`; no result is ever memory of another one, nor of a group's scratch.
//
// All ranks of the group call the same function, one after the other in the same order, with the
// same options; a call blocks as client::Group says, at most for its timeout. Inputs have any
// strides and any of the 17 types, may be empty, and lie on the host or on the rank's GPU, on all
// ranks alike. A group of one rank gets copies of what it gives.
//
// What is wrong with one rank's arguments is INVALID_ARGUMENT on all ranks, with the rank and what
// it gave, before anything moves; the group works on. (On streams it is that rank's alone, and of a
// broadcast of few KiB those who need not wait hear it from a later call: see client::Group.) A
// rank whose result finds no memory gets RESOURCE_EXHAUSTED, and the others INVALID_ARGUMENT, which
// names it. All other errors are those of client::Group.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_COLLECTIVES_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_COLLECTIVES_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/reduction.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/buffers.h"
#include "client/parallel/collectives/results.h"

namespace cohort::parallel {

// `call`: timeout and stream. `buffers`, which outlive the call: where results come from; null:
// from the group.

struct AllReduceOptions {
  Reduction reduction;
  bool in_place = false;  // the result is the input
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

struct ReduceOptions {
  int root = 0;  // a rank in the group, as all roots
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
  // By rank, the extents of `dim`. All ranks give them, or none: then each tells the others its
  // own first.
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
  // By rank, what each gets of `dim`; absent: all as much, without a remainder.
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
  std::optional<Sizes> sizes;  // as AllGatherV's
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
  // By rank, the rows that go to it, and those that come from it. Absent: all as many, of the
  // input's rows, without a remainder. The numbers are each rank's own, and are compared: what one
  // sends another expects.
  std::optional<Sizes> input_sizes;
  std::optional<Sizes> output_sizes;
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// --- Every rank has the same part.

// The reduction of all inputs, of their shape; the same bits on all ranks.
absl::StatusOr<Tensor> AllReduce(client::Group& group, const Tensor& input,
                                 const AllReduceOptions& options = {});
// The same at the root; nothing elsewhere, whose inputs stay as they are.
absl::StatusOr<std::optional<Tensor>> Reduce(client::Group& group, const Tensor& input,
                                             const ReduceOptions& options = {});
// What the root gives, on all ranks; others give a tensor of its type and shape, whose elements do
// not matter.
absl::StatusOr<Tensor> Broadcast(client::Group& group, const Tensor& tensor,
                                 const BroadcastOptions& options = {});
// As that, on a rank that is not the root and has no such tensor.
absl::StatusOr<Tensor> Broadcast(client::Group& group, const TensorSpec& spec,
                                 const BroadcastOptions& options = {});
// All inputs one behind the other along `dim`, by rank: its extent is size() times the input's.
absl::StatusOr<Tensor> AllGather(client::Group& group, const Tensor& input,
                                 const AllGatherOptions& options = {});
// This rank's part along `dim` of the reduction of all inputs: its extent is the input's divided by
// size(), without a remainder.
absl::StatusOr<Tensor> ReduceScatter(client::Group& group, const Tensor& input,
                                     const ReduceScatterOptions& options = {});
// At the root as AllGather; nothing elsewhere.
absl::StatusOr<std::optional<Tensor>> Gather(client::Group& group, const Tensor& input,
                                             const GatherOptions& options = {});
// Of the first dimension, whose extent is a multiple of size(): part r of the result is part
// rank() of rank r's input.
absl::StatusOr<Tensor> AllToAll(client::Group& group, const Tensor& input,
                                const AllToAllOptions& options = {});

// --- From one rank to all, a part each. The root calls one of the first two, the others the third.

// Part rank() along `dim` of `whole`.
absl::StatusOr<Tensor> Scatter(client::Group& group, const Tensor& whole,
                               const ScatterOptions& options = {});
// That of `parts`, one for each rank, all of one type and shape. They are joined along `dim`, which
// the others give alike.
absl::StatusOr<Tensor> Scatter(client::Group& group, absl::Span<const Tensor> parts,
                               const ScatterOptions& options = {});
// A part, as the root has it for this rank; `part` says what it is.
absl::StatusOr<Tensor> Scatter(client::Group& group, const TensorSpec& part,
                               const ScatterOptions& options = {});

// --- Ragged: extents along `dim` differ from rank to rank, and may be 0.

// All inputs one behind the other along `dim`: its extent is the sum of sizes.
absl::StatusOr<Tensor> AllGatherV(client::Group& group, const Tensor& input,
                                  const AllGatherVOptions& options = {});
// Of several tensors, which have the same extent of `dim` and may differ in all else: the result of
// each. All ranks give as many, which is compared.
absl::StatusOr<std::vector<Tensor>> AllGatherV(client::Group& group,
                                               absl::Span<const Tensor> inputs,
                                               const AllGatherVOptions& options = {});
// Along `dim`, sizes[rank()] of the reduction of all inputs, whose extent there is the sum. On the
// host always added up in the order of ranks: the same bits each time, whatever the sizes and the
// way to the others. On GPUs NCCL has its order.
absl::StatusOr<Tensor> ReduceScatterV(client::Group& group, const Tensor& input,
                                      const ReduceScatterVOptions& options = {});
// At the root as AllGatherV; nothing elsewhere.
absl::StatusOr<std::optional<Tensor>> GatherV(client::Group& group, const Tensor& input,
                                              const GatherVOptions& options = {});
// Of rows, the first dimension's: from each rank output_sizes[r], one behind the other by rank.
absl::StatusOr<Tensor> AllToAllV(client::Group& group, const Tensor& input,
                                 const AllToAllVOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_COLLECTIVES_H_
