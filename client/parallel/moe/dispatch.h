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
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/moe/sizes.h"

namespace cohort::parallel {

// One rank's tokens. All tensors have as many rows; types and other extents are theirs, and the
// same on all ranks.
struct TokenBatch {
  Tensor hidden;                   // [n, H]
  std::vector<Tensor> companions;  // such as a router's logits [n, E], or weights and ids [n, k]
  std::vector<Tensor> extras;      // such as scales, or which rows are padding
};

struct DispatchOptions {
  // By data rank: how many tokens its batch has; the same on all ranks. Absent: ranks tell each
  // other how many rows they bring, which is one exchange more.
  std::optional<TokenSizes> sizes;
  // So many neighbouring ranks share each batch: rank r brings SequenceSizes(*sizes, this)[r] rows,
  // padding included. Says nothing where `sizes` are absent: the rows are then what ranks bring.
  int sequence_parallel = 1;
  // The timeout is of the whole call. With a stream, ranks that bring other tensors than the rest
  // may hear so after some have moved.
  client::CallOptions call;
};

// All ranks' tokens, one behind the other by rank.
struct DispatchedBatch {
  Tensor hidden;  // [N, H]
  std::vector<Tensor> companions;
  std::vector<Tensor> extras;  // in the order in which they were given
  client::Sizes sizes;         // by rank: whose rows they are
};

// With the sizes given it is one exchange of all tensors that are small, and one for each that is
// large; of several of which none is small, behind one of a number.
absl::StatusOr<DispatchedBatch> Dispatch(client::Group& group, const TokenBatch& batch,
                                         const DispatchOptions& options = {});

struct CombineOptions {
  // As Dispatch was given.
  int sequence_parallel = 1;
  client::CallOptions call;
};

// `hidden` is [N, ...], this rank's part of all tokens: the result is [n, ...], this rank's tokens,
// each the sum of all ranks' parts. One exchange: Group::ReduceScatterV, whose rules of rounding
// and order hold. So after Dispatch alone it is size() times what each brought. `sizes` are those
// of DispatchedBatch, or by data rank as in DispatchOptions. Errors: also elements that are not
// added up (complex).
absl::StatusOr<Tensor> Combine(client::Group& group, const Tensor& hidden, const TokenSizes& sizes,
                               const CombineOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_DISPATCH_H_
