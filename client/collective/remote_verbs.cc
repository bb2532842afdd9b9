// The tensor verbs of RemoteGroup: each is a request, and its tensors.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "client/collective/call_tensors.h"
#include "client/collective/remote_group.h"
#include "cohort/v1/worker.pb.h"

namespace cohort::client {
namespace {

v1::RunCollectiveRequest MakeRequest(v1::TensorVerb verb) {
  v1::RunCollectiveRequest request;
  request.set_verb(verb);
  return request;
}

void SetReduction(const Reduction& reduction, v1::RunCollectiveRequest& request) {
  request.set_reduce_op(static_cast<int>(reduction.op));
  request.set_scale(reduction.scale);
}

void SetSizes(const Sizes& sizes, google::protobuf::RepeatedField<int64_t>* to) {
  to->Add(sizes.begin(), sizes.end());
}

}  // namespace

template <typename Count>
absl::Status RemoteGroup::Counted(absl::Status status, Count&& count) {
  if (!status.ok()) return status;
  MutexLock lock(&count_mutex_);
  count(peers_);
  return status;
}

absl::Status RemoteGroup::AllReduce(const Tensor& input, const Tensor& output,
                                    const Reduction& reduction, const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_ALL_REDUCE);
  SetReduction(reduction, request);
  return Counted(Run(request, &input, &output, options),
                 [&](PeerCounters& peers) { peers.CountEach(input.bytes(), input.bytes()); });
}

absl::Status RemoteGroup::Reduce(const Tensor& input, const Tensor& output,
                                 const Reduction& reduction, int root, const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_REDUCE);
  SetReduction(reduction, request);
  request.set_root(root);
  return Counted(Run(request, &input, root == rank_ ? &output : nullptr, options),
                 [&](PeerCounters& peers) { peers.CountToRoot(root, input.bytes()); });
}

absl::Status RemoteGroup::Broadcast(const Tensor& tensor, int root, const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_BROADCAST);
  request.set_root(root);
  CallTensors tensors = TensorsOf(options);
  const absl::Status added = root == rank_ ? tensors.AddInput(tensor, request.mutable_input())
                                           : tensors.AddOutput(tensor, request.mutable_input());
  if (!added.ok()) return TellRefusal(added, options);
  v1::RunCollectiveResponse response;
  COHORT_RETURN_IF_ERROR(RunRequest(request, tensors, options, &response));
  return Counted(tensors.Finish({&response.output()}),
                 [&](PeerCounters& peers) { peers.CountFromRoot(root, tensor.bytes()); });
}

absl::Status RemoteGroup::AllGather(const Tensor& input, const Tensor& output, int dim,
                                    const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_ALL_GATHER);
  request.set_dim(dim);
  return Counted(Run(request, &input, &output, options),
                 [&](PeerCounters& peers) { peers.CountEach(input.bytes(), input.bytes()); });
}

absl::Status RemoteGroup::ReduceScatter(const Tensor& input, const Tensor& output, int dim,
                                        const Reduction& reduction, const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_REDUCE_SCATTER);
  request.set_dim(dim);
  SetReduction(reduction, request);
  return Counted(Run(request, &input, &output, options),
                 [&](PeerCounters& peers) { peers.CountEach(output.bytes(), output.bytes()); });
}

absl::Status RemoteGroup::AllToAll(const Tensor& input, const Tensor& output,
                                   const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_ALL_TO_ALL);
  return Counted(Run(request, &input, &output, options),
                 [&](PeerCounters& peers) { peers.CountEachPart(input.bytes()); });
}

absl::Status RemoteGroup::Gather(const Tensor& input, const Tensor& output, int dim, int root,
                                 const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_GATHER);
  request.set_dim(dim);
  request.set_root(root);
  return Counted(Run(request, &input, root == rank_ ? &output : nullptr, options),
                 [&](PeerCounters& peers) { peers.CountToRoot(root, input.bytes()); });
}

absl::Status RemoteGroup::Scatter(const Tensor& input, const Tensor& output, int dim, int root,
                                  const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_SCATTER);
  request.set_dim(dim);
  request.set_root(root);
  return Counted(Run(request, root == rank_ ? &input : nullptr, &output, options),
                 [&](PeerCounters& peers) { peers.CountFromRoot(root, output.bytes()); });
}

absl::Status RemoteGroup::AllGatherV(const Tensor& input, const Tensor& output, int dim,
                                     const Sizes& sizes, const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_ALL_GATHER_V);
  request.set_dim(dim);
  SetSizes(sizes, request.mutable_sizes());
  return Counted(Run(request, &input, &output, options), [&](PeerCounters& peers) {
    peers.CountSendEach(input.bytes());
    peers.CountReceiveParts(sizes, output.bytes());
  });
}

absl::Status RemoteGroup::ReduceScatterV(const Tensor& input, const Tensor& output, int dim,
                                         const Sizes& sizes, const Reduction& reduction,
                                         const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_REDUCE_SCATTER_V);
  request.set_dim(dim);
  SetReduction(reduction, request);
  SetSizes(sizes, request.mutable_sizes());
  return Counted(Run(request, &input, &output, options), [&](PeerCounters& peers) {
    peers.CountSendParts(sizes, input.bytes());
    peers.CountReceiveEach(output.bytes());
  });
}

absl::Status RemoteGroup::GatherV(const Tensor& input, const Tensor& output, int dim,
                                  const Sizes& sizes, int root, const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_GATHER_V);
  request.set_dim(dim);
  request.set_root(root);
  SetSizes(sizes, request.mutable_sizes());
  return Counted(Run(request, &input, root == rank_ ? &output : nullptr, options),
                 [&](PeerCounters& peers) {
                   peers.CountPartsToRoot(root, sizes, output.bytes(), input.bytes());
                 });
}

absl::Status RemoteGroup::AllToAllV(const Tensor& input, const Sizes& input_sizes,
                                    const Tensor& output, const Sizes& output_sizes,
                                    const CallOptions& options) {
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_ALL_TO_ALL_V);
  SetSizes(input_sizes, request.mutable_sizes());
  SetSizes(output_sizes, request.mutable_output_sizes());
  return Counted(Run(request, &input, &output, options), [&](PeerCounters& peers) {
    peers.CountSendParts(input_sizes, input.bytes());
    peers.CountReceiveParts(output_sizes, output.bytes());
  });
}

absl::StatusOr<Sizes> RemoteGroup::ExchangeSizes(int64_t own, const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_EXCHANGE_SIZES);
  request.set_own_size(own);
  CallTensors none = TensorsOf(options);
  v1::RunCollectiveResponse response;
  COHORT_RETURN_IF_ERROR(RunRequest(request, none, options, &response));
  return Sizes(response.sizes().begin(), response.sizes().end());
}

absl::Status RemoteGroup::Barrier(const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_BARRIER);
  CallTensors none = TensorsOf(options);
  v1::RunCollectiveResponse response;
  return RunRequest(request, none, options, &response);
}

absl::StatusOr<int> RemoteGroup::AwaitMessage(absl::Span<const int> peers,
                                              const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_AWAIT_MESSAGE);
  SetSizes(Sizes(peers.begin(), peers.end()), request.mutable_sizes());
  CallTensors none = TensorsOf(options);
  v1::RunCollectiveResponse response;
  COHORT_RETURN_IF_ERROR(RunRequest(request, none, options, &response));
  const bool one_of_them =
      response.sizes_size() == 1 && std::count(peers.begin(), peers.end(), response.sizes(0)) > 0;
  if (!one_of_them) return absl::InternalError(absl::StrCat(session().worker(), " named nobody"));
  return static_cast<int>(response.sizes(0));
}

absl::Status RemoteGroup::Refuse(const absl::Status& why, const CallOptions& options) {
  constexpr size_t kMostSaid = 4096;
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_REFUSE);
  // Text that travels is printable, whoever made it.
  std::string text(why.message().substr(0, kMostSaid));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  request.set_why(std::move(text));
  CallOptions blocking;
  blocking.timeout = options.timeout;
  CallTensors none = TensorsOf(blocking);
  v1::RunCollectiveResponse response;
  return RunRequest(request, none, blocking, &response);
}

absl::Status RemoteGroup::Exchange(absl::Span<const TensorTransfer> transfers,
                                   const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(v1::TENSOR_VERB_EXCHANGE);
  CallTensors tensors = TensorsOf(options);
  for (const TensorTransfer& transfer : transfers) {
    v1::TensorTransfer& one = *request.add_transfers();
    one.set_sends(transfer.sends);
    one.set_peer(transfer.peer);
    COHORT_RETURN_IF_ERROR(transfer.sends
                               ? tensors.AddInput(transfer.tensor, one.mutable_tensor())
                               : tensors.AddOutput(transfer.tensor, one.mutable_tensor()));
  }
  v1::RunCollectiveResponse response;
  COHORT_RETURN_IF_ERROR(RunRequest(request, tensors, options, &response));
  std::vector<const std::string*> received;
  for (const std::string& bytes : response.received()) received.push_back(&bytes);
  return Counted(tensors.Finish(received),
                 [&](PeerCounters& peers) { CountTransfers(transfers, peers); });
}

}  // namespace cohort::client
