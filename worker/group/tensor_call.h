// A tensor verb as all ranks must agree on it: with shapes, dimensions and sizes, of which flat
// memory knows nothing.
#ifndef COHORT_WORKER_GROUP_TENSOR_CALL_H_
#define COHORT_WORKER_GROUP_TENSOR_CALL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/data_type.h"
#include "base/reduction.h"
#include "base/tensor.h"

namespace cohort::worker {

enum class TensorVerb : uint8_t {
  kAllReduce = 1,
  kReduce = 2,
  kBroadcast = 3,
  kAllGather = 4,
  kReduceScatter = 5,
  kAllToAll = 6,
  kGather = 7,
  kScatter = 8,
  kAllGatherV = 9,
  kReduceScatterV = 10,
  kGatherV = 11,
  kAllToAllV = 12,
  kExchangeSizes = 13,
  kExchange = 14,  // between two ranks: not compared
  kReplay = 15,    // of a sequence's calls on a GPU
  kRefuse = 16,    // in place of another
  kBarrier = 17,   // has no tensor
};

// Refers to the arguments of the call, which outlive it.
struct TensorCall {
  TensorVerb verb = TensorVerb::kAllReduce;
  DataType type = DataType::kU8;
  bool on_gpus = false;             // of memory of GPUs, whichever they are
  absl::Span<const int64_t> shape;  // of the tensor that every rank has
  int dim = -1;                     // resolved; -1: of the whole tensor
  bool ragged = false;              // the extent of `dim` is each rank's own
  int root = -1;                    // -1: none
  const Reduction* reduction = nullptr;
  absl::Span<const int64_t> sizes;
};

// "all_reduce", "all_gather_v", ...
absl::string_view NameOf(TensorVerb verb);
// Whether a number that came from elsewhere is one of the above.
bool IsTensorVerb(int value);

TensorCall MakeTensorCall(TensorVerb verb, const Tensor& tensor);
// -n..n-1. Errors: INVALID_ARGUMENT.
absl::Status SetDim(TensorCall& call, int dim);

// Calls that differ have different ones, but for one in four thousand million.
uint32_t Digest(const TensorCall& call);

// Such as: all_gather_v of f32 [2, *] along dimension 1, sizes [3, 0, 4].
std::string Describe(const TensorCall& call);

// What was called, and what is wrong with it: see worker/communicator/refusal.h.
absl::Status Refuse(const TensorCall& call, absl::string_view why);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TENSOR_CALL_H_
