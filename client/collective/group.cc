#include "client/collective/group.h"

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::client {

absl::Status Group::FailCollectiveAs(const absl::Status& why, const CallOptions& options) {
  const absl::Status told = FailCollective(why, options);
  if (options.stream.has_value()) return why;
  const bool wrong_argument = absl::IsInvalidArgument(why) || absl::IsNotFound(why);
  return absl::IsInvalidArgument(told) && !wrong_argument ? absl::Status(why.code(), told.message())
                                                          : told;
}

absl::Status Group::AllReduce(const Tensor& input, const Tensor& output, const Reduction& reduction,
                              const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kAllReduce, input, output);
  call.reduction = reduction;
  return Run(call, input, output, options);
}

absl::Status Group::AllReduceCoalesced(absl::Span<const Tensor> inputs,
                                       absl::Span<const Tensor> outputs, const Reduction& reduction,
                                       const CallOptions& options) {
  const Tensor none;
  const Tensor& input = inputs.empty() ? none : inputs[0];
  const Tensor& output = outputs.empty() ? none : outputs[0];
  CollectiveCall call = MakeCall(Collective::kAllReduceCoalesced, input, output);
  call.inputs = inputs;
  call.outputs = outputs;
  call.reduction = reduction;
  return Run(call, input, output, options);
}

absl::Status Group::Reduce(const Tensor& input, const Tensor& output, const Reduction& reduction,
                           int root, const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kReduce, input, output);
  call.reduction = reduction;
  call.root = root;
  return Run(call, input, output, options);
}

absl::Status Group::Broadcast(const Tensor& tensor, int root, const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kBroadcast, tensor, tensor);
  call.root = root;
  return Run(call, tensor, tensor, options);
}

absl::Status Group::AllGather(const Tensor& input, const Tensor& output, int dim,
                              const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kAllGather, input, output);
  call.dim = dim;
  return Run(call, input, output, options);
}

absl::Status Group::ReduceScatter(const Tensor& input, const Tensor& output, int dim,
                                  const Reduction& reduction, const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kReduceScatter, input, output);
  call.reduction = reduction;
  call.dim = dim;
  return Run(call, input, output, options);
}

absl::Status Group::AllToAll(const Tensor& input, const Tensor& output,
                             const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kAllToAll, input, output);
  call.dim = 0;
  return Run(call, input, output, options);
}

absl::Status Group::Gather(const Tensor& input, const Tensor& output, int dim, int root,
                           const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kGather, input, output);
  call.dim = dim;
  call.root = root;
  return Run(call, input, output, options);
}

absl::Status Group::Scatter(const Tensor& input, const Tensor& output, int dim, int root,
                            const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kScatter, input, output);
  call.dim = dim;
  call.root = root;
  return Run(call, input, output, options);
}

absl::Status Group::AllGatherV(const Tensor& input, const Tensor& output, int dim,
                               const Sizes& sizes, const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kAllGatherV, input, output);
  call.dim = dim;
  call.sizes = sizes;
  return Run(call, input, output, options);
}

absl::Status Group::ReduceScatterV(const Tensor& input, const Tensor& output, int dim,
                                   const Sizes& sizes, const Reduction& reduction,
                                   const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kReduceScatterV, input, output);
  call.reduction = reduction;
  call.dim = dim;
  call.sizes = sizes;
  return Run(call, input, output, options);
}

absl::Status Group::GatherV(const Tensor& input, const Tensor& output, int dim, const Sizes& sizes,
                            int root, const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kGatherV, input, output);
  call.dim = dim;
  call.root = root;
  call.sizes = sizes;
  return Run(call, input, output, options);
}

absl::Status Group::AllToAllV(const Tensor& input, const Sizes& input_sizes, const Tensor& output,
                              const Sizes& output_sizes, const CallOptions& options) {
  CollectiveCall call = MakeCall(Collective::kAllToAllV, input, output);
  call.dim = 0;
  call.sizes = input_sizes;
  call.output_sizes = output_sizes;
  return Run(call, input, output, options);
}

absl::StatusOr<Sizes> Group::ExchangeSizes(int64_t own, const CallOptions& options) {
  Sizes sizes(static_cast<size_t>(size()));
  const Tensor input(&own, DataType::kI64, {1});
  const Tensor output(sizes.data(), DataType::kI64, {size()});
  COHORT_RETURN_IF_ERROR(
      Run(MakeCall(Collective::kExchangeSizes, input, output), input, output, options));
  return sizes;
}

absl::Status Group::Barrier(const CallOptions& options) {
  return Run(CollectiveCall(), Tensor(), Tensor(), options);
}

absl::Status Group::Send(const Tensor& tensor, int destination, const CallOptions& options) {
  const TensorTransfer transfer = {true, destination, tensor};
  return Exchange(absl::MakeConstSpan(&transfer, 1), options);
}

absl::Status Group::Receive(const Tensor& tensor, int source, const CallOptions& options) {
  const TensorTransfer transfer = {false, source, tensor};
  return Exchange(absl::MakeConstSpan(&transfer, 1), options);
}

absl::Status Group::Copy(const Tensor& from, const Tensor& to, const CallOptions& options) {
  const TensorCopy copy = {from, to};
  return CopyAll(absl::MakeConstSpan(&copy, 1), options);
}

absl::StatusOr<std::unique_ptr<Sequence>> Group::Record(
    absl::FunctionRef<absl::Status(Group&)> /*body*/, const CallOptions& /*options*/) {
  return absl::FailedPreconditionError(
      absl::StrCat("record: group ", name(), " has no GPU tensors on rank ", rank(),
                   "; a sequence is a CUDA graph: call the collectives themselves"));
}

void CountCollective(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                     PeerCounters& peers) {
  switch (call.collective) {
    case Collective::kAllReduce:
    case Collective::kAllGather:
      return peers.CountEach(input.bytes(), input.bytes());
    case Collective::kAllReduceCoalesced: {
      const int64_t bytes = BytesOf(call, input, output);
      return peers.CountEach(bytes, bytes);
    }
    case Collective::kReduceScatter:
      return peers.CountEach(output.bytes(), output.bytes());
    case Collective::kAllToAll:
      return peers.CountEachPart(input.bytes());
    case Collective::kReduce:
    case Collective::kGather:
      return peers.CountToRoot(call.root, input.bytes());
    case Collective::kBroadcast:
    case Collective::kScatter:
      return peers.CountFromRoot(call.root, output.bytes());
    case Collective::kAllGatherV:
      peers.CountSendEach(input.bytes());
      return peers.CountReceiveParts(call.sizes, output.bytes());
    case Collective::kReduceScatterV:
      peers.CountSendParts(call.sizes, input.bytes());
      return peers.CountReceiveEach(output.bytes());
    case Collective::kGatherV:
      return peers.CountPartsToRoot(call.root, call.sizes, output.bytes(), input.bytes());
    case Collective::kAllToAllV:
      peers.CountSendParts(call.sizes, input.bytes());
      return peers.CountReceiveParts(call.output_sizes, output.bytes());
    default:
      return;  // no tensors
  }
}

void CountTransfers(absl::Span<const TensorTransfer> transfers, PeerCounters& peers) {
  for (const TensorTransfer& transfer : transfers) {
    const int64_t bytes = transfer.tensor.bytes();
    if (transfer.sends) {
      peers.CountSend(transfer.peer, bytes);
    } else {
      peers.CountReceive(transfer.peer, bytes);
    }
  }
}

}  // namespace cohort::client
