#include "worker/group/tensor_call.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/communicator/refusal.h"

namespace cohort::worker {
namespace {

class Mixer {
 public:
  void Add(uint64_t value) {
    state_ = (state_ ^ value) * 0x9E3779B97F4A7C15u;
    state_ ^= state_ >> 32;
  }
  uint32_t Result() const { return static_cast<uint32_t>(state_ ^ state_ >> 29); }

 private:
  uint64_t state_ = 0xA0761D6478BD642Fu;
};

}  // namespace

absl::string_view NameOf(TensorVerb verb) {
  constexpr absl::string_view kNames[] = {
      "all_reduce", "reduce",       "broadcast",      "all_gather",   "reduce_scatter",
      "all_to_all", "gather",       "scatter",        "all_gather_v", "reduce_scatter_v",
      "gather_v",   "all_to_all_v", "exchange_sizes", "exchange",     "replay",
      "refuse",     "barrier"};
  return kNames[static_cast<int>(verb) - 1];
}

bool IsTensorVerb(int value) {
  return value >= static_cast<int>(TensorVerb::kAllReduce) &&
         value <= static_cast<int>(TensorVerb::kBarrier);
}

TensorCall MakeTensorCall(TensorVerb verb, const Tensor& tensor) {
  TensorCall call;
  call.verb = verb;
  call.type = tensor.type();
  call.on_gpus = tensor.device().is_cuda();
  call.shape = tensor.shape();
  return call;
}

absl::Status SetDim(TensorCall& call, int dim) {
  if (dim >= 0 && dim < static_cast<int>(call.shape.size())) {
    call.dim = dim;
    return absl::OkStatus();
  }
  const absl::StatusOr<int> resolved = ResolveDim(Shape(call.shape.begin(), call.shape.end()), dim);
  if (!resolved.ok()) return Refuse(call, resolved.status().message());
  call.dim = *resolved;
  return absl::OkStatus();
}

uint32_t Digest(const TensorCall& call) {
  Mixer mixer;
  const int op = call.reduction == nullptr ? 0 : static_cast<int>(call.reduction->op);
  mixer.Add(static_cast<uint64_t>(call.verb) | static_cast<uint64_t>(call.type) << 8 |
            static_cast<uint64_t>(op) << 16 | uint64_t{call.on_gpus} << 24 |
            uint64_t{call.shape.size()} << 32);
  mixer.Add(static_cast<uint64_t>(call.root + 1) | static_cast<uint64_t>(call.dim + 1) << 32);
  for (size_t i = 0; i < call.shape.size(); ++i) {
    if (call.ragged && static_cast<int>(i) == call.dim) continue;
    mixer.Add(static_cast<uint64_t>(call.shape[i]));
  }
  if (!call.sizes.empty()) mixer.Add(call.sizes.size());
  for (const int64_t size : call.sizes) mixer.Add(static_cast<uint64_t>(size));
  if (op == static_cast<int>(ReduceOp::kPreMulSum)) {
    uint64_t scale = 0;
    std::memcpy(&scale, &call.reduction->scale, sizeof(scale));
    mixer.Add(scale);
  }
  return mixer.Result();
}

std::string Describe(const TensorCall& call) {
  if (call.verb == TensorVerb::kExchangeSizes || call.verb == TensorVerb::kBarrier) {
    return std::string(NameOf(call.verb));
  }
  std::string text = absl::StrCat(NameOf(call.verb), " of ", cohort::NameOf(call.type), " [");
  for (size_t i = 0; i < call.shape.size(); ++i) {
    if (i > 0) absl::StrAppend(&text, ", ");
    if (call.ragged && static_cast<int>(i) == call.dim) {
      absl::StrAppend(&text, "*");
    } else {
      absl::StrAppend(&text, call.shape[i]);
    }
  }
  absl::StrAppend(&text, call.on_gpus ? "] on GPUs" : "]");
  if (call.dim >= 0) absl::StrAppend(&text, " along dimension ", call.dim);
  if (call.reduction != nullptr) {
    absl::StrAppend(&text, " by ", cohort::NameOf(call.reduction->op));
    if (call.reduction->op == ReduceOp::kPreMulSum) {
      absl::StrAppend(&text, " times ", call.reduction->scale);
    }
  }
  if (call.root >= 0) absl::StrAppend(&text, ", root ", call.root);
  if (!call.sizes.empty()) {
    absl::StrAppend(&text, ", sizes [", absl::StrJoin(call.sizes, ", "), "]");
  }
  return text;
}

absl::Status Refuse(const TensorCall& call, absl::string_view why) {
  return RefusalError(absl::StrCat(Describe(call), ": ", why));
}

}  // namespace cohort::worker
