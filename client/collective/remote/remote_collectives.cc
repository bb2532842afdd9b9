// The collectives of RemoteGroup: each is a request with its tensors.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "client/collective/remote/call_tensors.h"
#include "client/collective/remote/remote_group.h"
#include "cohort/v1/worker.pb.h"

namespace cohort::client {
namespace {

v1::RunCollectiveRequest MakeRequest(Collective collective) {
  v1::RunCollectiveRequest request;
  request.set_collective(static_cast<v1::Collective>(collective));
  return request;
}

void SetSizes(absl::Span<const int64_t> sizes, google::protobuf::RepeatedField<int64_t>* to) {
  to->Add(sizes.begin(), sizes.end());
}

std::vector<const std::string*> Pointers(
    const google::protobuf::RepeatedPtrField<std::string>& texts) {
  return {texts.pointer_begin(), texts.pointer_end()};
}

bool SameElements(const Tensor& a, const Tensor& b) {
  return a.data() == b.data() && a.type() == b.type() && a.shape() == b.shape() &&
         a.strides() == b.strides();
}

// Whether a rank that could not give a tensor to its worker can still tell the other ranks. With
// other errors the worker is gone, or late.
bool CanFailCollective(const absl::Status& error) {
  return absl::IsInvalidArgument(error) || absl::IsFailedPrecondition(error) ||
         absl::IsResourceExhausted(error);
}

}  // namespace

absl::Status RemoteGroup::Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                              const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(call.collective);
  CallTensors tensors = TensorsOf(options);
  if (MovesTensors(call.collective)) {
    request.set_dim(call.dim);
    if (HasRoot(call.collective)) request.set_root(call.root);
    if (Reduces(call.collective)) {
      request.set_reduce_op(static_cast<int>(call.reduction.op));
      request.set_scale(call.reduction.scale);
    }
    SetSizes(call.sizes, request.mutable_sizes());
    SetSizes(call.output_sizes, request.mutable_output_sizes());
    const absl::Status added = AddTensors(call, input, output, tensors, request);
    if (!added.ok()) return CanFailCollective(added) ? FailCollectiveAs(added, options) : added;
  } else if (call.collective == Collective::kExchangeSizes) {
    request.set_own_size(*static_cast<const int64_t*>(input.data()));
  }
  v1::RunCollectiveResponse response;
  COHORT_RETURN_IF_ERROR(RunRequest(request, tensors, options, &response));
  if (call.collective == Collective::kExchangeSizes) {
    if (response.sizes_size() != output.count()) {
      return absl::InternalError(absl::StrCat(session().worker(), " answered exchange_sizes with ",
                                              response.sizes_size(), " sizes, expected ",
                                              output.count()));
    }
    std::copy(response.sizes().begin(), response.sizes().end(),
              static_cast<int64_t*>(output.data()));
    return absl::OkStatus();
  }
  if (!MovesTensors(call.collective)) return absl::OkStatus();
  COHORT_RETURN_IF_ERROR(tensors.Finish(call.collective == Collective::kAllReduceCoalesced
                                            ? Pointers(response.received())
                                            : std::vector<const std::string*>{&response.output()}));
  MutexLock lock(&count_mutex_);
  CountCollective(call, input, output, peers_);
  return absl::OkStatus();
}

absl::Status RemoteGroup::AddTensors(const CollectiveCall& call, const Tensor& input,
                                     const Tensor& output, CallTensors& tensors,
                                     v1::RunCollectiveRequest& request) const {
  if (call.collective == Collective::kAllReduceCoalesced) {
    if (call.inputs.size() != call.outputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(call), ": ", call.outputs.size(),
                                                     " outputs for ", call.inputs.size(),
                                                     " inputs"));
    }
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      v1::TensorPair& pair = *request.add_tensors();
      pair.set_in_place(SameElements(call.inputs[i], call.outputs[i]));
      if (pair.in_place()) {
        COHORT_RETURN_IF_ERROR(tensors.AddInOut(call.inputs[i], pair.mutable_input()));
        continue;
      }
      COHORT_RETURN_IF_ERROR(tensors.AddInput(call.inputs[i], pair.mutable_input()));
      COHORT_RETURN_IF_ERROR(tensors.AddOutput(call.outputs[i], pair.mutable_output()));
    }
    return absl::OkStatus();
  }
  const bool is_root = call.root == rank_;
  if (call.collective == Collective::kBroadcast) {
    return is_root ? tensors.AddInput(input, request.mutable_input())
                   : tensors.AddOutput(output, request.mutable_input());
  }
  const bool has_input = call.collective != Collective::kScatter || is_root;
  const bool has_output = !IsToRoot(call.collective) || is_root;
  if (has_input && has_output && SameElements(input, output)) {
    request.set_in_place(true);
    return tensors.AddInOut(input, request.mutable_input());
  }
  if (has_input) COHORT_RETURN_IF_ERROR(tensors.AddInput(input, request.mutable_input()));
  if (has_output) COHORT_RETURN_IF_ERROR(tensors.AddOutput(output, request.mutable_output()));
  return absl::OkStatus();
}

absl::StatusOr<MessageInfo> RemoteGroup::AwaitMessage(absl::Span<const int> peers,
                                                      const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(Collective::kAwaitMessage);
  SetSizes(Sizes(peers.begin(), peers.end()), request.mutable_sizes());
  CallTensors none = TensorsOf(options);
  v1::RunCollectiveResponse response;
  COHORT_RETURN_IF_ERROR(RunRequest(request, none, options, &response));
  const auto& info = response.sizes();
  if (info.size() != 3 || std::count(peers.begin(), peers.end(), info[0]) == 0 ||
      !IsDataType(static_cast<int>(info[1])) || info[2] < 0) {
    return absl::InternalError(absl::StrCat(session().worker(), " returned [",
                                            absl::StrJoin(info, ", "), "] for an awaited message"));
  }
  return MessageInfo{static_cast<int>(info[0]), static_cast<DataType>(info[1]), info[2]};
}

absl::Status RemoteGroup::FailCollective(const absl::Status& why, const CallOptions& options) {
  constexpr size_t kMostSaid = 4096;
  if (options.stream.has_value()) return why;  // no call of this group is on a stream
  COHORT_RETURN_IF_ERROR(Standing());
  v1::RunCollectiveRequest request = MakeRequest(Collective::kFail);
  // The text may come from any source; only printable characters travel.
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
  v1::RunCollectiveRequest request = MakeRequest(Collective::kExchange);
  CallTensors tensors = TensorsOf(options);
  for (const TensorTransfer& transfer : transfers) {
    v1::TensorTransfer& one = *request.add_transfers();
    one.set_sends(transfer.sends);
    one.set_peer(transfer.peer);
    COHORT_RETURN_IF_ERROR(Explain(CheckInHostMemory(transfer.tensor), false));
    COHORT_RETURN_IF_ERROR(transfer.sends
                               ? tensors.AddInput(transfer.tensor, one.mutable_tensor())
                               : tensors.AddOutput(transfer.tensor, one.mutable_tensor()));
  }
  v1::RunCollectiveResponse response;
  COHORT_RETURN_IF_ERROR(RunRequest(request, tensors, options, &response));
  COHORT_RETURN_IF_ERROR(tensors.Finish(Pointers(response.received())));
  MutexLock lock(&count_mutex_);
  CountTransfers(transfers, peers_);
  return absl::OkStatus();
}

}  // namespace cohort::client
