#include "worker/group/collectives/tensor_collectives.h"

#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/optimization.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/argument_error.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/mismatch.h"
#include "worker/group/collectives/mismatch_text.h"
#include "worker/group/collectives/tensor_parts.h"

namespace cohort::worker {
namespace {

// No other call has this tag.
constexpr uint32_t kFailedTag = 0x9E55D1C7;

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

bool HasRepeats(const Tensor& tensor) {
  if (tensor.contiguous()) return false;
  for (size_t i = 0; i < tensor.shape().size(); ++i) {
    if (tensor.strides()[i] == 0 && tensor.shape()[i] > 1) return tensor.count() > 0;
  }
  return false;
}

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
  if (status.ok()) return communicator_.TakeDeferredError();
  if (!IsMismatch(status)) return status;
  return ExplainMismatch(host_, Describe(call), status, deadline);
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
    return communicator_.TakeDeferredError();
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
      return AllReduce(call, input, output, deadline);
    case Collective::kAllReduceCoalesced:
      return AllReduceCoalesced(call, deadline);
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
  COHORT_RETURN_IF_ERROR(CheckInput(call, input));
  COHORT_RETURN_IF_ERROR(CheckOutput(call, output, input.shape()));
  COHORT_ASSIGN_OR_RETURN(const void* const from, Load(input));
  COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(output));
  return Finish(call, RunFlat(call, Collective::kAllReduce, from, to, input.count(), deadline), to,
                output, deadline);
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
  return EqualAllToAll(call, input, output, deadline);
}

absl::Status TensorCollectives::EqualAllToAll(const CollectiveCall& call, const Tensor& input,
                                              const Tensor& output, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(const void* const from, Load(input));
  COHORT_ASSIGN_OR_RETURN(void* const to, FlatMemory(output));
  return Finish(call,
                RunFlat(call, Collective::kAllToAll, from, to, input.count() / size(), deadline),
                to, output, deadline);
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

absl::Status TensorCollectives::Exchange(absl::Span<const client::TensorTransfer> transfers,
                                         Instant deadline) {
  constexpr int64_t kLine = 64;
  absl::InlinedVector<Transfer, 8> flat;
  int64_t bytes = 0;  // of scratch
  for (const client::TensorTransfer& transfer : transfers) {
    const Tensor& tensor = transfer.tensor;
    flat.push_back({transfer.sends, transfer.peer, tensor.data(), tensor.count(), tensor.type()});
    if (tensor.device() != device_) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(flat.back()), ": the tensor is on ",
                                                     tensor.device().ToString(),
                                                     " and should be on ", device_.ToString()));
    }
    if (!transfer.sends && HasRepeats(tensor)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(flat.back()), ": its elements overlap in memory"));
    }
    if (!tensor.contiguous()) bytes += (tensor.bytes() + kLine - 1) / kLine * kLine;
  }
  if (bytes == 0) return communicator_.Exchange(flat, deadline);

  COHORT_RETURN_IF_ERROR(CheckTransfers(flat, rank(), size()));
  COHORT_ASSIGN_OR_RETURN(char* room, scratch_.Take(ContiguousScratch::kInput, bytes));
  for (size_t i = 0; i < flat.size(); ++i) {
    const Tensor& tensor = transfers[i].tensor;
    if (tensor.contiguous()) continue;
    flat[i].data = room;
    room += (tensor.bytes() + kLine - 1) / kLine * kLine;
    if (flat[i].sends) {
      COHORT_RETURN_IF_ERROR(
          location_.Copy(tensor, Flat(flat[i].data, tensor.type(), tensor.shape())));
    }
  }
  const absl::Status status = communicator_.Exchange(flat, deadline);
  // If one message differed from its tensor, the other messages have arrived.
  absl::Status stored;
  if (status.ok() || absl::IsInvalidArgument(status)) {
    for (size_t i = 0; i < flat.size(); ++i) {
      if (!flat[i].sends) stored.Update(Store(flat[i].data, transfers[i].tensor));
    }
    stored.Update(location_.Finish(deadline));
  }
  scratch_.Trim();
  return status.ok() ? stored : status;
}

absl::StatusOr<MessageInfo> TensorCollectives::AwaitMessage(absl::Span<const int> peers,
                                                            Instant deadline) {
  if (peers.empty())
    return absl::InvalidArgumentError("await of a message: the list of ranks is empty");
  for (const int peer : peers) {
    if (peer >= 0 && peer < size() && peer != rank()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("await of a message of rank ", peer, ": ",
                     peer == rank() ? std::string("that is this rank itself")
                                    : absl::StrCat("ranks are 0..", size() - 1)));
  }
  return communicator_.AwaitMessage(peers, deadline);
}

absl::Status TensorCollectives::FailOnAllRanks(absl::string_view why, Instant deadline) {
  FlatCall call;
  call.collective = Collective::kBarrier;
  call.tag = kFailedTag;
  const absl::Status ran = host_.Run(call, nullptr, nullptr, deadline);
  if (ran.ok() || IsMismatch(ran)) {
    // If all ranks fail the collective, the barrier passes without a mismatch, and `why` is the
    // error.
    return ExplainMismatch(host_, std::string(why),
                           ran.ok() ? absl::InvalidArgumentError(why) : ran, deadline);
  }
  return absl::Status(ran.code(),
                      absl::StrCat(ran.message(), "; this rank failed the collective: ", why));
}

}  // namespace cohort::worker
