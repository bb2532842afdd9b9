#include "base/collective/collective_call.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort {
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

KeptCall::KeptCall(const CollectiveCall& call, const Tensor& input, const Tensor& output)
    : call(call),
      input(input),
      output(output),
      sizes(call.sizes.begin(), call.sizes.end()),
      output_sizes(call.output_sizes.begin(), call.output_sizes.end()),
      inputs(call.inputs.begin(), call.inputs.end()),
      outputs(call.outputs.begin(), call.outputs.end()) {}

CollectiveCall KeptCall::View() const {
  CollectiveCall view = call;
  view.shape = MakeCall(call.collective, input, output).shape;
  view.sizes = sizes;
  view.output_sizes = output_sizes;
  view.inputs = inputs;
  view.outputs = outputs;
  return view;
}

uint32_t Digest(const CollectiveCall& call) {
  Mixer mixer;
  const uint64_t op = Reduces(call.collective) ? static_cast<uint64_t>(call.reduction.op) : 0;
  mixer.Add(static_cast<uint64_t>(call.collective) | static_cast<uint64_t>(call.type) << 8 |
            op << 16 | uint64_t{call.on_gpus} << 24 | uint64_t{call.shape.size()} << 32);
  const int root = HasRoot(call.collective) ? call.root : -1;
  const int dim = HasDim(call.collective) ? call.dim : -1;
  mixer.Add(static_cast<uint64_t>(root + 1) | static_cast<uint64_t>(dim + 1) << 32);
  for (size_t i = 0; i < call.shape.size(); ++i) {
    if (call.ragged && static_cast<int>(i) == call.dim) continue;
    mixer.Add(static_cast<uint64_t>(call.shape[i]));
  }
  if (!call.sizes.empty()) mixer.Add(call.sizes.size());
  for (const int64_t size : call.sizes) mixer.Add(static_cast<uint64_t>(size));
  for (const Tensor& tensor : call.inputs) {
    mixer.Add(tensor.shape().size());
    for (const int64_t extent : tensor.shape()) mixer.Add(static_cast<uint64_t>(extent));
  }
  if (op == static_cast<uint64_t>(ReduceOp::kPreMulSum)) {
    uint64_t scale = 0;
    std::memcpy(&scale, &call.reduction.scale, sizeof(scale));
    mixer.Add(scale);
  }
  return mixer.Result();
}

std::string Describe(const CollectiveCall& call) {
  std::string text(NameOf(call.collective));
  if (call.collective == Collective::kExchangeSizes || call.collective == Collective::kBarrier) {
    return text;
  }
  absl::StrAppend(&text, " of ", NameOf(call.type), " [");
  for (size_t i = 0; i < call.shape.size(); ++i) {
    if (i > 0) absl::StrAppend(&text, ", ");
    if (call.ragged && static_cast<int>(i) == call.dim) {
      absl::StrAppend(&text, "*");
    } else {
      absl::StrAppend(&text, call.shape[i]);
    }
  }
  absl::StrAppend(&text, "]");
  for (size_t i = 1; i < call.inputs.size(); ++i) {
    absl::StrAppend(&text, ", ", FormatShape(call.inputs[i].shape()));
  }
  if (call.on_gpus) absl::StrAppend(&text, " on GPUs");
  if (call.dim >= 0) absl::StrAppend(&text, " along dimension ", call.dim);
  if (Reduces(call.collective)) {
    absl::StrAppend(&text, " by ", NameOf(call.reduction.op));
    if (call.reduction.op == ReduceOp::kPreMulSum) {
      absl::StrAppend(&text, " times ", call.reduction.scale);
    }
  }
  if (call.root >= 0) absl::StrAppend(&text, ", root ", call.root);
  if (!call.sizes.empty()) {
    absl::StrAppend(&text, ", sizes [", absl::StrJoin(call.sizes, ", "), "]");
  }
  return text;
}

}  // namespace cohort
