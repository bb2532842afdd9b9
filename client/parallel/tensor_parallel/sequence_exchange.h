// Converts tensors of which each rank has some rows to tensors of which it has some columns, and
// back. Each is one all_to_all on views.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SEQUENCE_EXCHANGE_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SEQUENCE_EXCHANGE_H_

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/results/result_buffers.h"

namespace cohort::parallel {

// `call`: timeout and stream. `buffers`: the memory for results; null: the group's memory.
struct SequenceExchangeOptions {
  client::CallOptions call;
  const Buffers* buffers = nullptr;
};

// Both: all ranks call it, with tensors of one type and shape, and get a new tensor of two
// dimensions, also in a group of one rank. Dimensions before the last are rows, in order. Each is
// the other's inverse and adjoint. Errors: INVALID_ARGUMENT, on all ranks alike (a remainder, or no
// dimension); those of Group::AllToAll.

// Takes this rank's rows, [n/T, H] on T ranks, and returns its columns of all rows, [n, H/T], the
// rows of rank 0 first. T divides H. Source: all_to_all_sp2hp.
absl::StatusOr<Tensor> SequenceToHidden(client::Group& group, const Tensor& input,
                                        const SequenceExchangeOptions& options = {});

// Takes this rank's columns of all rows, [n, H/T], and returns all columns of its rows, [n/T, H]. T
// divides n. Source: all_to_all_hp2sp.
absl::StatusOr<Tensor> HiddenToSequence(client::Group& group, const Tensor& input,
                                        const SequenceExchangeOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_PARALLEL_SEQUENCE_EXCHANGE_H_
