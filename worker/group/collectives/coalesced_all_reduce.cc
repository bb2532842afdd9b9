// All_reduce of several tensors in one call. In host memory, small tensors that follow each other
// are packed into one flat call; on GPUs, all tensors are one group of NCCL's calls.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/argument_error.h"
#include "worker/group/collectives/tensor_collectives.h"

namespace cohort::worker {
namespace {

// Checks that both are the same elements, or do not overlap. Only of contiguous tensors: the others
// are copied.
absl::Status CheckApart(const CollectiveCall& call, const Tensor& input, const Tensor& output) {
  if (!input.contiguous() || !output.contiguous()) return absl::OkStatus();
  const auto* const from = static_cast<const char*>(input.data());
  const auto* const to = static_cast<const char*>(output.data());
  const bool apart = from + input.bytes() <= to || to + output.bytes() <= from;
  if (apart || from == to) return absl::OkStatus();
  return InvalidCall(call, "input and output overlap and are not the same");
}

// The tensors of an all_reduce_coalesced, in flat memory.
class CoalescedTensors {
 public:
  // All outlive it.
  CoalescedTensors(const CollectiveCall& call, TensorLocation* location, Device device)
      : call_(call),
        flat_call_(FlatCallOf(call, Collective::kAllReduce, 0)),
        location_(*location),
        device_(device) {}

  // Copies inputs that are not contiguous.
  absl::Status Load(ContiguousScratch& scratch) {
    int64_t input_bytes = 0;
    int64_t output_bytes = 0;
    bool overflow = false;
    const auto add = [&overflow](const Tensor& tensor, int64_t& bytes) {
      if (tensor.contiguous()) return;
      bytes += std::min(tensor.bytes(), kLargest) + kLine;
      overflow |= bytes > kLargest;
      bytes = std::min(bytes, kLargest);
    };
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      add(call_.inputs[i], input_bytes);
      add(call_.outputs[i], output_bytes);
    }
    if (overflow) return InvalidCall(call_, "the tensors are larger than memory");
    // Several tensors in host memory may be packed.
    if (device_.is_host() && call_.inputs.size() > 1) output_bytes += kPackedBytes;
    char* inputs = nullptr;
    char* outputs = nullptr;
    if (input_bytes > 0) {
      COHORT_ASSIGN_OR_RETURN(inputs, scratch.Take(ContiguousScratch::kInput, input_bytes));
    }
    if (output_bytes > 0) {
      COHORT_ASSIGN_OR_RETURN(outputs, scratch.Take(ContiguousScratch::kOutput, output_bytes));
    }
    for (size_t i = 0; i < call_.inputs.size(); ++i) {
      const Tensor& input = call_.inputs[i];
      const Tensor& output = call_.outputs[i];
      FlatTensor flat = {input.data(), output.data(), input.count()};
      if (!input.contiguous()) {
        COHORT_RETURN_IF_ERROR(location_.Copy(input, Flat(inputs, input)));
        flat.input = inputs;
        inputs += Padded(input);
      }
      if (!output.contiguous()) {
        flat.output = outputs;
        outputs += Padded(output);
      }
      flat_.push_back(flat);
    }
    packed_ = outputs;
    return absl::OkStatus();
  }

  // `run` runs one flat call.
  using Runner = absl::FunctionRef<absl::Status(const FlatCall&, const void* input, void* output)>;
  absl::Status Run(Runner run) { return device_.is_host() ? RunPacked(run) : RunTogether(run); }

  // Copies results to the outputs that are not contiguous; sets `stores` if there are any.
  absl::Status Store(bool& stores) {
    for (size_t i = 0; i < call_.outputs.size(); ++i) {
      const Tensor& output = call_.outputs[i];
      if (output.contiguous()) continue;
      stores = true;
      COHORT_RETURN_IF_ERROR(location_.Copy(Flat(flat_[i].output, output), output));
    }
    return absl::OkStatus();
  }

 private:
  // Tensors that follow each other are packed into one flat call of at most this size.
  // Communicators of several hosts choose another order of sums only for larger calls, so the bits
  // do not depend on it.
  static constexpr int64_t kPackedBytes = int64_t{32} << 10;

  // Strides of 0 make tensors larger than memory.
  static constexpr int64_t kLargest = int64_t{1} << 60;
  static constexpr int64_t kLine = 64;

  static int64_t Padded(const Tensor& tensor) {
    return (tensor.bytes() + kLine - 1) / kLine * kLine;
  }
  Tensor Flat(void* data, const Tensor& like) const {
    return Tensor(data, like.type(), like.shape(), nullptr, device_);
  }
  FlatCall Call(int64_t count) const {
    FlatCall call = flat_call_;
    call.count = count;
    return call;
  }

  absl::Status RunPacked(Runner run) {
    const int64_t element = SizeOf(call_.type);
    for (size_t begin = 0; begin < flat_.size();) {
      int64_t count = flat_[begin].count;
      size_t end = begin + 1;
      while (end < flat_.size() && (count + flat_[end].count) * element <= kPackedBytes) {
        count += flat_[end++].count;
      }
      if (end == begin + 1) {
        COHORT_RETURN_IF_ERROR(run(Call(count), flat_[begin].input, flat_[begin].output));
      } else {
        COHORT_RETURN_IF_ERROR(RunPacked(run, begin, end, count));
      }
      begin = end;
    }
    return absl::OkStatus();
  }
  absl::Status RunPacked(Runner run, size_t begin, size_t end, int64_t count) {
    const int64_t element = SizeOf(call_.type);
    char* at = packed_;
    for (size_t i = begin; i < end; ++i) {
      const auto bytes = static_cast<size_t>(flat_[i].count * element);
      if (bytes > 0) std::memcpy(at, flat_[i].input, bytes);
      at += bytes;
    }
    COHORT_RETURN_IF_ERROR(run(Call(count), packed_, packed_));
    at = packed_;
    for (size_t i = begin; i < end; ++i) {
      const auto bytes = static_cast<size_t>(flat_[i].count * element);
      if (bytes > 0) std::memcpy(flat_[i].output, at, bytes);
      at += bytes;
    }
    return absl::OkStatus();
  }

  // One group of NCCL's calls.
  absl::Status RunTogether(Runner run) {
    std::vector<FlatTensor> filled;
    for (const FlatTensor& tensor : flat_) {
      if (tensor.count > 0) filled.push_back(tensor);
    }
    if (filled.empty()) return run(Call(0), nullptr, nullptr);
    FlatCall call = Call(filled[0].count);
    call.also = absl::MakeConstSpan(filled).subspan(1);
    return run(call, filled[0].input, filled[0].output);
  }

  const CollectiveCall& call_;
  const FlatCall flat_call_;  // its count is not valid
  TensorLocation& location_;
  const Device device_;
  absl::InlinedVector<FlatTensor, 8> flat_;
  char* packed_ = nullptr;  // room for kPackedBytes, if it packs
};

}  // namespace

absl::Status TensorCollectives::AllReduceCoalesced(const CollectiveCall& call, Instant deadline) {
  if (call.inputs.empty() || call.inputs.size() != call.outputs.size()) {
    return InvalidCall(call, absl::StrCat(call.outputs.size(), " outputs for ", call.inputs.size(),
                                          " inputs; expected as many, and at least one"));
  }
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    absl::Status status = CheckInput(call, call.inputs[i], call.inputs[i].shape());
    if (status.ok()) status = CheckOutput(call, call.outputs[i], call.inputs[i].shape());
    if (status.ok()) status = CheckApart(call, call.inputs[i], call.outputs[i]);
    if (!status.ok()) return ArgumentError(absl::StrCat(status.message(), " (tensor ", i, ")"));
  }
  CoalescedTensors tensors(call, &location_, device_);
  COHORT_RETURN_IF_ERROR(tensors.Load(scratch_));
  absl::Status status = tensors.Run([&](const FlatCall& flat, const void* from, void* to) {
    return communicator_.Run(flat, from, to, deadline);
  });
  bool stores = false;
  if (status.ok()) status = tensors.Store(stores);
  return stores ? FinishCopied(call, std::move(status), deadline)
                : Finish(call, std::move(status), deadline);
}

}  // namespace cohort::worker
