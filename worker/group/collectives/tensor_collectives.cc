// One file, though long: the collectives share their checks and the ways from tensors to flat memory
// and back.
#include "worker/group/collectives/tensor_collectives.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/optimization.h"
#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/argument_error.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/mismatch.h"
#include "worker/group/collectives/mismatch_text.h"
#include "worker/group/collectives/tensor_parts.h"

namespace cohort::worker {
namespace {

constexpr absl::string_view kOverlapping = "the output's elements overlap in memory";

int64_t ExtentOf(const Tensor& tensor, int dim) { return tensor.shape()[static_cast<size_t>(dim)]; }

// The shape of `parts` such parts along the call's dimension. An extent that overflows becomes the
// largest number, which fits no tensor.
Like Whole(const CollectiveCall& call, const Tensor& part, int parts) {
  int64_t extent = 0;
  if (__builtin_mul_overflow(ExtentOf(part, call.dim), parts, &extent)) {
    extent = std::numeric_limits<int64_t>::max();
  }
  return {part.shape(), call.dim, extent};
}

// Checks that the extent is a multiple of `parts`. Errors: INVALID_ARGUMENT.
absl::Status CheckParts(const CollectiveCall& call, const Tensor& input, int dim, int parts) {
  const int64_t extent = ExtentOf(input, dim);
  if (extent % parts == 0) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("the extent of dimension ", dim, " of the input, ", extent,
                                        ", is not a multiple of the ", parts, " ranks"));
}

bool HasMemory(const Tensor& tensor) { return tensor.data() != nullptr || tensor.count() == 0; }

absl::Status CheckTensor(const CollectiveCall& call, absl::string_view which,
                         const Tensor& tensor) {
  if (HasMemory(tensor)) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("the ", which, ", ", tensor.ToString(), ", has no memory"));
}

bool Is(const Shape& shape, const Like& like) {
  const absl::Span<const int64_t> extents(shape);
  const absl::Span<const int64_t> others(like.shape);
  if (extents.size() != others.size()) return false;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] != (static_cast<int>(i) == like.dim ? like.extent : others[i])) return false;
  }
  return true;
}

std::string FormatShape(const Like& like) {
  Shape shape = like.shape;
  if (like.dim >= 0) shape[static_cast<size_t>(like.dim)] = like.extent;
  return cohort::FormatShape(shape);
}

absl::Status CheckTensor(const CollectiveCall& call, absl::string_view which, const Tensor& tensor,
                         const Like& like) {
  if (tensor.type() != call.type || !Is(tensor.shape(), like)) {
    return InvalidCall(call,
                       absl::StrCat("the ", which, " is ", tensor.ToString(), " and should be ",
                                    NameOf(call.type), " ", FormatShape(like)));
  }
  return CheckTensor(call, which, tensor);
}

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

TensorCollectives::TensorCollectives(Communicator* communicator, TensorLocation* location,
                                     Device device, Communicator* host)
    : communicator_(*communicator),
      host_(*host),
      location_(*location),
      device_(device),
      scratch_(location) {}

absl::Status TensorCollectives::WrongRoot(const CollectiveCall& call) const {
  CollectiveCall shown = call;
  shown.root = -1;
  shown.dim = -1;
  shown.sizes = {};
  return InvalidCall(shown, absl::StrCat("root ", call.root, " is not in 0..", size() - 1));
}

absl::Status TensorCollectives::CheckDevice(const CollectiveCall& call, absl::string_view which,
                                            const Tensor& tensor) const {
  if (tensor.device() == device_) return absl::OkStatus();
  return InvalidCall(call, absl::StrCat("the ", which, " is ", tensor.ToString(),
                                        " and should be on ", device_.ToString()));
}

absl::Status TensorCollectives::CheckInput(const CollectiveCall& call, const Tensor& input) const {
  if (ABSL_PREDICT_TRUE(input.device() == device_ && HasMemory(input))) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(CheckDevice(call, "input", input));
  return CheckTensor(call, "input", input);
}

absl::Status TensorCollectives::CheckInput(const CollectiveCall& call, const Tensor& input,
                                           const Like& like) const {
  COHORT_RETURN_IF_ERROR(CheckDevice(call, "input", input));
  return CheckTensor(call, "input", input, like);
}

absl::Status TensorCollectives::CheckOutput(const CollectiveCall& call, const Tensor& output,
                                            const Like& like) const {
  if (ABSL_PREDICT_TRUE(output.contiguous() && output.device() == device_ &&
                        output.type() == call.type && Is(output.shape(), like) &&
                        HasMemory(output))) {
    return absl::OkStatus();
  }
  if (HasRepeats(output)) return InvalidCall(call, kOverlapping);
  COHORT_RETURN_IF_ERROR(CheckDevice(call, "output", output));
  return CheckTensor(call, "output", output, like);
}

absl::StatusOr<const void*> TensorCollectives::Load(const Tensor& view) {
  if (view.contiguous()) return view.data();
  COHORT_ASSIGN_OR_RETURN(char* const flat, scratch_.Take(ContiguousScratch::kInput, view.bytes()));
  COHORT_RETURN_IF_ERROR(location_.Copy(view, Flat(flat, view.type(), view.shape())));
  return flat;
}

absl::StatusOr<void*> TensorCollectives::FlatMemory(const Tensor& view) {
  if (view.contiguous()) return view.data();
  return scratch_.Take(ContiguousScratch::kOutput, view.bytes());
}

absl::Status TensorCollectives::Store(const void* flat, const Tensor& view) {
  if (flat == view.data()) return absl::OkStatus();
  return location_.Copy(Flat(flat, view.type(), view.shape()), view);
}

absl::Status TensorCollectives::RunFlat(const CollectiveCall& call, Collective collective,
                                        const void* input, void* output, int64_t count,
                                        Instant deadline) {
  return communicator_.Run(FlatCallOf(call, collective, count), input, output, deadline);
}

absl::Status TensorCollectives::Finish(const CollectiveCall& call, absl::Status status,
                                       Instant deadline) {
  scratch_.Trim();
  if (status.ok()) return status;
  return Explain(Describe(call), std::move(status), deadline);
}

absl::Status TensorCollectives::Explain(const std::string& own, absl::Status status,
                                        Instant deadline, CallForm form, bool* mixed) {
  if (!IsMismatch(status)) {
    // All ranks get it from a later call, to which this rank brings its text.
    if (IsFirstMismatch(status)) failed_call_ = own;
    return status;
  }
  const std::optional<std::string> earlier = EarlierCallOf(status);
  if (!earlier.has_value()) return ExplainMismatch(host_, own, status, deadline, form, mixed);
  const std::string then = failed_call_.empty() ? *earlier : std::exchange(failed_call_, {});
  const absl::Status explained = ExplainMismatch(host_, then, status, deadline);
  return EarlierCallOf(explained).has_value() ? explained
                                              : EarlierMismatchError(explained.message(), then);
}

absl::Status TensorCollectives::FinishCopied(const CollectiveCall& call, absl::Status status,
                                             Instant deadline) {
  if (status.ok()) status = location_.Finish(deadline);
  return Finish(call, std::move(status), deadline);
}

absl::Status TensorCollectives::Finish(const CollectiveCall& call, absl::Status status,
                                       const void* flat, const Tensor& view, Instant deadline) {
  const bool in_place = flat == nullptr || flat == view.data();
  if (ABSL_PREDICT_TRUE(status.ok() && in_place)) {
    scratch_.Trim();
    return status;
  }
  if (!status.ok() || in_place) return Finish(call, std::move(status), deadline);
  return FinishCopied(call, Store(flat, view), deadline);
}

absl::Status TensorCollectives::RunWithResolvedDim(const CollectiveCall& call, const Tensor& input,
                                                   const Tensor& output, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(const CollectiveCall resolved, WithResolvedDim(call));
  return Run(resolved, input, output, deadline);
}

absl::Status TensorCollectives::Run(const CollectiveCall& call, const Tensor& input,
                                    const Tensor& output, Instant deadline) {
  if (HasRoot(call.collective) && (call.root < 0 || call.root >= size())) return WrongRoot(call);
  if (HasDim(call.collective) && static_cast<size_t>(call.dim) >= call.shape.size()) {
    return RunWithResolvedDim(call, input, output, deadline);
  }
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kAllReduceCoalesced:
      return AllReduce(call, input, output, deadline);
    case Collective::kReduce:
      return Reduce(call, input, output, deadline);
    case Collective::kBroadcast:
      return Broadcast(call, input, output, deadline);
    case Collective::kAllGather:
      return AllGather(call, input, output, deadline);
    case Collective::kReduceScatter:
      return ReduceScatter(call, input, output, deadline);
    case Collective::kAllToAll:
      return AllToAll(call, input, output, deadline);
    case Collective::kGather:
      return Gather(call, input, output, deadline);
    case Collective::kScatter:
      return Scatter(call, input, output, deadline);
    case Collective::kAllGatherV:
      return AllGatherV(call, input, output, deadline);
    case Collective::kReduceScatterV:
      return ReduceScatterV(call, input, output, deadline);
    case Collective::kGatherV:
      return GatherV(call, input, output, deadline);
    case Collective::kAllToAllV:
      return AllToAllV(call, input, output, deadline);
    case Collective::kExchangeSizes:
      return ExchangeSizes(call, input, output, deadline);
    case Collective::kBarrier:
      return Barrier(deadline);
    default:
      return InvalidCall(call, "groups run no such collective");
  }
}

absl::Status TensorCollectives::AllReduce(const CollectiveCall& call, const Tensor& input,
                                          const Tensor& output, Instant deadline) {
  if (ABSL_PREDICT_TRUE(call.collective == Collective::kAllReduce)) {
    COHORT_RETURN_IF_ERROR(CheckInput(call, input));
    COHORT_RETURN_IF_ERROR(CheckOutput(call, output, input.shape()));
    COHORT_ASSIGN_OR_RETURN(const void* const from, Load(input));
    COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(output));
    return Finish(call, RunFlat(call, Collective::kAllReduce, from, to, input.count(), deadline),
                  to, output, deadline);
  }
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

absl::Status TensorCollectives::Reduce(const CollectiveCall& call, const Tensor& input,
                                       const Tensor& output, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckInput(call, input));
  void* to = nullptr;
  if (rank() == call.root) {
    COHORT_RETURN_IF_ERROR(CheckOutput(call, output, input.shape()));
    COHORT_ASSIGN_OR_RETURN(to, FlatMemory(output));
  }
  COHORT_ASSIGN_OR_RETURN(const void* const from, Load(input));
  return Finish(call, RunFlat(call, Collective::kReduce, from, to, input.count(), deadline), to,
                output, deadline);
}

absl::Status TensorCollectives::Broadcast(const CollectiveCall& call, const Tensor& tensor,
                                          const Tensor&, Instant deadline) {
  const bool is_root = rank() == call.root;
  COHORT_RETURN_IF_ERROR(is_root ? CheckInput(call, tensor)
                                 : CheckOutput(call, tensor, tensor.shape()));
  COHORT_ASSIGN_OR_RETURN(void* const flat, FlatMemory(tensor));
  if (is_root && flat != tensor.data()) {
    COHORT_RETURN_IF_ERROR(location_.Copy(tensor, Flat(flat, tensor.type(), tensor.shape())));
  }
  FlatCall broadcast = FlatCallOf(call, Collective::kBroadcast, tensor.count());
  broadcast.eager = true;
  const absl::Status status = communicator_.Run(broadcast, flat, flat, deadline);
  return Finish(call, status, is_root ? nullptr : flat, tensor, deadline);
}

absl::Status TensorCollectives::AllGather(const CollectiveCall& call, const Tensor& input,
                                          const Tensor& output, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckInput(call, input));
  COHORT_RETURN_IF_ERROR(CheckOutput(call, output, Whole(call, input, size())));
  return EqualAllGather(call, input, output, deadline);
}

absl::Status TensorCollectives::EqualAllGather(const CollectiveCall& call, const Tensor& input,
                                               const Tensor& output, Instant deadline) {
  std::optional<Tensor> room;
  const Tensor& parts = EqualParts(output, call.dim, size(), room);
  COHORT_ASSIGN_OR_RETURN(const void* const from, Load(input));
  COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(parts));
  return Finish(call, RunFlat(call, Collective::kAllGather, from, to, input.count(), deadline), to,
                parts, deadline);
}

absl::Status TensorCollectives::ReduceScatter(const CollectiveCall& call, const Tensor& input,
                                              const Tensor& output, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckInput(call, input));
  COHORT_RETURN_IF_ERROR(CheckParts(call, input, call.dim, size()));
  const int64_t extent = ExtentOf(input, call.dim) / size();
  COHORT_RETURN_IF_ERROR(CheckOutput(call, output, {input.shape(), call.dim, extent}));
  return EqualReduceScatter(call, input, output, deadline);
}

absl::Status TensorCollectives::EqualReduceScatter(const CollectiveCall& call, const Tensor& input,
                                                   const Tensor& output, Instant deadline) {
  std::optional<Tensor> room;
  COHORT_ASSIGN_OR_RETURN(const void* const from, Load(EqualParts(input, call.dim, size(), room)));
  COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(output));
  return Finish(call, RunFlat(call, Collective::kReduceScatter, from, to, output.count(), deadline),
                to, output, deadline);
}

absl::Status TensorCollectives::AllToAll(const CollectiveCall& call, const Tensor& input,
                                         const Tensor& output, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckFirstDim(call));
  COHORT_RETURN_IF_ERROR(CheckInput(call, input));
  COHORT_RETURN_IF_ERROR(CheckParts(call, input, 0, size()));
  COHORT_RETURN_IF_ERROR(CheckOutput(call, output, input.shape()));
  bool mixed = false;
  const absl::Status status = EqualAllToAll(call, input, output, deadline, &mixed);
  if (!mixed) return status;
  const std::vector<int64_t> equal(static_cast<size_t>(size()), ExtentOf(input, 0) / size());
  CollectiveCall ragged = call;
  ragged.collective = Collective::kAllToAllV;
  ragged.ragged = true;
  ragged.sizes = ragged.output_sizes = equal;
  return AllToAllV(ragged, input, output, deadline);
}

absl::Status TensorCollectives::EqualAllToAll(const CollectiveCall& call, const Tensor& input,
                                              const Tensor& output, Instant deadline, bool* mixed) {
  COHORT_ASSIGN_OR_RETURN(const void* const from, Load(input));
  COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(output));
  const absl::Status status =
      RunFlat(call, Collective::kAllToAll, from, to, input.count() / size(), deadline);
  if (mixed != nullptr && IsMismatch(status)) {
    scratch_.Trim();
    return Explain(Describe(call), status, deadline, CallForm::kAllToAll, mixed);
  }
  return Finish(call, status, to, output, deadline);
}

absl::Status TensorCollectives::Gather(const CollectiveCall& call, const Tensor& input,
                                       const Tensor& output, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckInput(call, input));
  if (rank() == call.root) {
    COHORT_RETURN_IF_ERROR(CheckOutput(call, output, Whole(call, input, size())));
  }
  return EqualGather(call, input, output, deadline);
}

absl::Status TensorCollectives::EqualGather(const CollectiveCall& call, const Tensor& input,
                                            const Tensor& output, Instant deadline) {
  Tensor parts;
  void* to = nullptr;
  if (rank() == call.root) {
    std::optional<Tensor> room;
    parts = EqualParts(output, call.dim, size(), room);
    COHORT_ASSIGN_OR_RETURN(to, FlatMemory(parts));
  }
  COHORT_ASSIGN_OR_RETURN(const void* const from, Load(input));
  return Finish(call, RunFlat(call, Collective::kGather, from, to, input.count(), deadline), to,
                parts, deadline);
}

absl::Status TensorCollectives::Scatter(const CollectiveCall& call, const Tensor& input,
                                        const Tensor& output, Instant deadline) {
  COHORT_RETURN_IF_ERROR(CheckOutput(call, output, output.shape()));
  const void* from = nullptr;
  if (rank() == call.root) {
    COHORT_RETURN_IF_ERROR(CheckInput(call, input, Whole(call, output, size())));
    std::optional<Tensor> room;
    COHORT_ASSIGN_OR_RETURN(from, Load(EqualParts(input, call.dim, size(), room)));
  }
  COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(output));
  return Finish(call, RunFlat(call, Collective::kScatter, from, to, output.count(), deadline), to,
                output, deadline);
}

absl::Status TensorCollectives::Barrier(Instant deadline) {
  const CollectiveCall call;
  return Finish(call, RunFlat(call, Collective::kBarrier, nullptr, nullptr, 0, deadline), deadline);
}

absl::Status TensorCollectives::FailOnAllRanks(absl::string_view why, Instant deadline) {
  FlatCall call;
  call.collective = Collective::kBarrier;
  call.tag = kFailedTag;
  const absl::Status ran = host_.Run(call, nullptr, nullptr, deadline);
  // If all ranks fail the collective, the barrier passes without a mismatch: `why` is the error.
  if (ran.ok()) {
    return ExplainMismatch(host_, std::string(why), absl::InvalidArgumentError(why), deadline);
  }
  if (absl::IsInvalidArgument(ran)) {
    const absl::Status explained = Explain(std::string(why), ran, deadline);
    if (IsMismatch(ran)) return explained;
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", rank(), " ", why,
                     "; the other ranks did not wait for this one, and all ranks get this error "
                     "from a later call"));
  }
  return absl::Status(ran.code(),
                      absl::StrCat(ran.message(), "; this rank failed the collective: ", why));
}

}  // namespace cohort::worker
