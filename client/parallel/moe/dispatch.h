// Mixtures of experts, the plain way: every rank gets all tokens, and returns its experts' part of
// every token. Rows travel unchanged, so it serves any data type, on the host and on GPUs.
//
// All ranks of the group call Dispatch and Combine, ranks without tokens included, which give
// tensors without rows. Calls block, except on a stream. Inputs have any strides and are not
// changed. Results are contiguous and new from Group::Allocate, in the place of the inputs.
// Sources: `dispatch` and `combine` of DeviceCommunicatorBase and GroupCoordinator, and their
// all-gather/reduce-scatter manager.
//
// Errors of all: INVALID_ARGUMENT, on all ranks, naming the rank and why, before anything has
// moved: a rank's tensors do not fit each other or the sizes, or ranks mean different things. Those
// of Group.
#ifndef COHORT_CLIENT_PARALLEL_MOE_DISPATCH_H_
#define COHORT_CLIENT_PARALLEL_MOE_DISPATCH_H_

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/moe/rows/row_counts.h"

namespace cohort::parallel {

// One rank's tokens. All tensors have the same number of rows. The types and the other extents may
// differ between the tensors, and are the same on all ranks.
struct TokenBatch {
  Tensor hidden;                   // [n, H]
  std::vector<Tensor> companions;  // such as a router's logits [n, E], or weights and ids [n, k]
  std::vector<Tensor> extras;      // such as scales, or which rows are padding
};

struct DispatchOptions {
  // By data rank: the number of tokens of its batch; the same on all ranks. Absent: ranks exchange
  // their numbers of rows, in one more exchange.
  std::optional<TokenSizes> sizes;
  // The number of neighbouring ranks that share each batch: rank r has SequenceSizes(*sizes,
  // this)[r] rows, padding included. Ignored if `sizes` are absent: ranks then have any number of
  // rows.
  int sequence_parallel = 1;
  // The timeout limits the whole call. On a stream, ranks whose tensors differ from the others' may
  // get that error after some tensors have moved.
  client::CallOptions call;
};

// The tokens of all ranks, concatenated by rank.
struct DispatchedBatch {
  Tensor hidden;  // [N, H]
  std::vector<Tensor> companions;
  std::vector<Tensor> extras;  // in the order in which they were given
  client::Sizes sizes;         // by rank: the number of its rows
};

// With given sizes it takes one exchange for all small tensors, and one for each large tensor. If
// there are several tensors and no small one, an exchange of one number comes first.
absl::StatusOr<DispatchedBatch> Dispatch(client::Group& group, const TokenBatch& batch,
                                         const DispatchOptions& options = {});

struct CombineOptions {
  // The same as in Dispatch.
  int sequence_parallel = 1;
  client::CallOptions call;
};

// `hidden` is [N, ...], this rank's part of all tokens. The result is [n, ...], this rank's tokens,
// each the sum of all ranks' parts. One exchange: Group::ReduceScatterV, with its rounding and
// order. So right after Dispatch, it is size() times each rank's input. `sizes` are those of
// DispatchedBatch, or by data rank as in DispatchOptions. Errors: also elements that cannot be
// summed (complex).
absl::StatusOr<Tensor> Combine(client::Group& group, const Tensor& hidden, const TokenSizes& sizes,
                               const CombineOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_DISPATCH_H_
