// The description of a collective call: shapes, dimensions and sizes.
#ifndef COHORT_BASE_COLLECTIVE_COLLECTIVE_CALL_H_
#define COHORT_BASE_COLLECTIVE_COLLECTIVE_CALL_H_

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "base/collective/collective.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"
#include "base/tensor/tensor.h"

namespace cohort {

// The parts of a call that have to be the same on all ranks. It refers to the arguments of the
// call, which outlive it.
struct CollectiveCall {
  Collective collective = Collective::kBarrier;
  DataType type = DataType::kU8;
  bool on_gpus = false;             // the tensors are in GPU memory
  bool ragged = false;              // each rank has its own extent along `dim`
  int dim = -1;                     // 0..n-1, or -n..-1 from a caller; -1 after checks: none used
  int root = -1;                    // -1: the call has no root
  absl::Span<const int64_t> shape;  // of the tensor that every rank has
  absl::Span<const int64_t> sizes;  // by rank, for ragged calls
  // Only for all_to_all_v, where each rank has its own sizes: `sizes` are the sizes that this rank
  // sends, these the sizes that it receives.
  absl::Span<const int64_t> output_sizes;
  Reduction reduction;  // if Reduces(collective)
  // Only for all_reduce_coalesced: all tensors, of one type. `shape` is that of the first.
  absl::Span<const Tensor> inputs;
  absl::Span<const Tensor> outputs;
};

// Takes type and shape from the tensor that every rank has: the output of scatter and
// reduce_scatter_v, the input of the others. The caller sets root, dimension, sizes and reduction.
inline CollectiveCall MakeCall(Collective collective, const Tensor& input, const Tensor& output) {
  const bool by_output =
      collective == Collective::kScatter || collective == Collective::kReduceScatterV;
  const Tensor& tensor = by_output ? output : input;
  CollectiveCall call;
  call.collective = collective;
  call.ragged = IsRagged(collective);
  call.type = tensor.type();
  call.on_gpus = tensor.device().is_cuda();
  call.shape = tensor.shape();
  return call;
}

// A call with everything that it refers to, to run it later or again.
struct KeptCall {
  // Copies the arguments. The tensors keep their memory.
  KeptCall(const CollectiveCall& call, const Tensor& input, const Tensor& output);
  KeptCall() = default;

  // Returns the call. It refers to this object.
  CollectiveCall View() const;

  CollectiveCall call;  // its spans are not valid
  Tensor input;
  Tensor output;
  std::vector<int64_t> sizes;
  std::vector<int64_t> output_sizes;
  std::vector<Tensor> inputs;
  std::vector<Tensor> outputs;
};

// The bytes of the larger of this rank's input and output, as records and metrics count them. With
// several tensors: the bytes of all inputs.
inline int64_t BytesOf(const CollectiveCall& call, const Tensor& input, const Tensor& output) {
  if (call.inputs.empty()) return std::max(input.bytes(), output.bytes());
  int64_t bytes = 0;
  for (const Tensor& tensor : call.inputs) {
    // Strides of 0 make tensors larger than memory.
    if (__builtin_add_overflow(bytes, tensor.bytes(), &bytes)) return INT64_MAX;
  }
  return bytes;
}

// Equal calls have equal digests. Different calls have equal digests in one of 2^32 cases.
uint32_t Digest(const CollectiveCall& call);

// A text such as: all_gather_v of f32 [2, *] along dimension 1, sizes [3, 0, 4].
std::string Describe(const CollectiveCall& call);

// The same call on flat memory, where each rank's part has `count` elements. `collective` is the
// one that moves them: an all_gather_v of equal sizes is an all_gather.
inline FlatCall FlatCallOf(const CollectiveCall& call, Collective collective, int64_t count) {
  FlatCall flat;
  flat.collective = collective;
  flat.type = call.type;
  flat.root = call.root;
  flat.count = count;
  flat.reduction = call.reduction;
  flat.tag = Digest(call);
  return flat;
}

}  // namespace cohort

#endif  // COHORT_BASE_COLLECTIVE_COLLECTIVE_CALL_H_
