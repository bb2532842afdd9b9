#include "worker/service/collective_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/printable.h"
#include "base/status_macros.h"
#include "worker/service/tensor_layout.h"

namespace cohort::worker {
namespace {

using client::CallOptions;
using client::Sizes;
using client::TensorTransfer;

constexpr int kMaxTransfers = 65536;
constexpr size_t kMostSaid = 4096;

Sizes ToSizes(const google::protobuf::RepeatedField<int64_t>& sizes) {
  return Sizes(sizes.begin(), sizes.end());
}

// What is no rank of any group stays none.
std::vector<int> ToRanks(const google::protobuf::RepeatedField<int64_t>& numbers) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  std::vector<int> ranks;
  for (const int64_t number : numbers) {
    ranks.push_back(static_cast<int>(std::clamp<int64_t>(number, -1, kMost)));
  }
  return ranks;
}

}  // namespace

CollectiveRequest::CollectiveRequest(const TensorTable& tensors, int64_t max_inline_bytes,
                                     const v1::RunCollectiveRequest& request,
                                     v1::RunCollectiveResponse* response)
    : tensors_(tensors), inline_left_(max_inline_bytes), request_(request), response_(response) {}

absl::Status CollectiveRequest::Run(client::Group& group, const CallOptions& options) {
  device_ = group.device();
  const absl::Status read = ReadArguments(group.rank());
  if (read.ok()) return RunVerb(group, options);
  owners_.clear();  // it comes to no device
  return TellRefusal(group, read, options);
}

absl::Status CollectiveRequest::TellRefusal(client::Group& group, const absl::Status& why,
                                            const CallOptions& options) {
  // On a stream nobody waits here.
  if (options.stream.has_value()) return why;
  const absl::Status told = group.Refuse(why, options);
  // The one that has no room may want to know it by its code.
  const bool by_code = absl::IsResourceExhausted(why) && absl::IsInvalidArgument(told);
  return by_code ? absl::ResourceExhaustedError(told.message()) : told;
}

absl::Status CollectiveRequest::ReadArguments(int rank) {
  switch (request_.verb()) {
    case v1::TENSOR_VERB_ALL_REDUCE:
    case v1::TENSOR_VERB_REDUCE:
    case v1::TENSOR_VERB_REDUCE_SCATTER:
    case v1::TENSOR_VERB_REDUCE_SCATTER_V: {
      COHORT_ASSIGN_OR_RETURN(reduction_, ReadReduction());
      break;
    }
    case v1::TENSOR_VERB_ALL_GATHER:
    case v1::TENSOR_VERB_ALL_TO_ALL:
    case v1::TENSOR_VERB_GATHER:
    case v1::TENSOR_VERB_SCATTER:
    case v1::TENSOR_VERB_ALL_GATHER_V:
    case v1::TENSOR_VERB_GATHER_V:
    case v1::TENSOR_VERB_ALL_TO_ALL_V:
      break;
    case v1::TENSOR_VERB_BROADCAST: {
      COHORT_ASSIGN_OR_RETURN(input_, BroadcastTensor(request_.root() == rank));
      return absl::OkStatus();
    }
    default:
      return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(input_, Input());
  COHORT_ASSIGN_OR_RETURN(output_, Output());
  return absl::OkStatus();
}

absl::Status CollectiveRequest::RunVerb(client::Group& group, const CallOptions& options) {
  const v1::RunCollectiveRequest& request = request_;
  switch (request.verb()) {
    case v1::TENSOR_VERB_ALL_REDUCE:
      return group.AllReduce(input_, output_, reduction_, options);
    case v1::TENSOR_VERB_REDUCE:
      return group.Reduce(input_, output_, reduction_, request.root(), options);
    case v1::TENSOR_VERB_BROADCAST:
      return group.Broadcast(input_, request.root(), options);
    case v1::TENSOR_VERB_ALL_GATHER:
      return group.AllGather(input_, output_, request.dim(), options);
    case v1::TENSOR_VERB_REDUCE_SCATTER:
      return group.ReduceScatter(input_, output_, request.dim(), reduction_, options);
    case v1::TENSOR_VERB_ALL_TO_ALL:
      return group.AllToAll(input_, output_, options);
    case v1::TENSOR_VERB_GATHER:
      return group.Gather(input_, output_, request.dim(), request.root(), options);
    case v1::TENSOR_VERB_SCATTER:
      return group.Scatter(input_, output_, request.dim(), request.root(), options);
    case v1::TENSOR_VERB_ALL_GATHER_V:
      return group.AllGatherV(input_, output_, request.dim(), ToSizes(request.sizes()), options);
    case v1::TENSOR_VERB_REDUCE_SCATTER_V:
      return group.ReduceScatterV(input_, output_, request.dim(), ToSizes(request.sizes()),
                                  reduction_, options);
    case v1::TENSOR_VERB_GATHER_V:
      return group.GatherV(input_, output_, request.dim(), ToSizes(request.sizes()), request.root(),
                           options);
    case v1::TENSOR_VERB_ALL_TO_ALL_V:
      return group.AllToAllV(input_, ToSizes(request.sizes()), output_,
                             ToSizes(request.output_sizes()), options);
    case v1::TENSOR_VERB_EXCHANGE_SIZES: {
      COHORT_ASSIGN_OR_RETURN(const Sizes sizes, group.ExchangeSizes(request.own_size(), options));
      response_->mutable_sizes()->Add(sizes.begin(), sizes.end());
      return absl::OkStatus();
    }
    case v1::TENSOR_VERB_BARRIER:
      return group.Barrier(options);
    case v1::TENSOR_VERB_EXCHANGE:
      return Exchange(group, options);
    case v1::TENSOR_VERB_AWAIT_STREAMS:
      return group.AwaitStreams(options);
    case v1::TENSOR_VERB_AWAIT_MESSAGE: {
      COHORT_ASSIGN_OR_RETURN(const int peer,
                              group.AwaitMessage(ToRanks(request.sizes()), options));
      response_->add_sizes(peer);
      return absl::OkStatus();
    }
    case v1::TENSOR_VERB_REFUSE:
      if (request.why().size() > kMostSaid) {
        return absl::InvalidArgumentError(absl::StrCat("why: ", request.why().size(), " bytes"));
      }
      return group.Refuse(absl::InvalidArgumentError(Printable(request.why())), options);
    default:
      return absl::InvalidArgumentError(absl::StrCat(request.verb(), " is not a verb"));
  }
}

absl::Status CollectiveRequest::Exchange(client::Group& group, const CallOptions& options) {
  if (request_.transfers_size() > kMaxTransfers) {
    return absl::InvalidArgumentError(
        absl::StrCat(request_.transfers_size(), " transfers; at most ", kMaxTransfers));
  }
  std::vector<TensorTransfer> transfers;
  for (const v1::TensorTransfer& one : request_.transfers()) {
    const bool is_inline =
        one.tensor().where_case() == v1::TensorRef::kInline && !one.tensor().on_device();
    absl::StatusOr<Tensor> tensor =
        one.sends() ? ReadOnly(one.tensor())
                    : Writable(one.tensor(), is_inline ? response_->add_received() : nullptr);
    if (!tensor.ok()) {
      owners_.clear();  // it comes to no device
      return tensor.status();
    }
    transfers.push_back({one.sends(), one.peer(), *std::move(tensor)});
  }
  return group.Exchange(transfers, options);
}

absl::StatusOr<Tensor> CollectiveRequest::Input() {
  if (!request_.has_input()) return Tensor();
  return ReadOnly(request_.input());
}

absl::StatusOr<Tensor> CollectiveRequest::Output() {
  if (!request_.in_place()) {
    if (!request_.has_output()) return Tensor();
    return Writable(request_.output(), response_->mutable_output());
  }
  if (request_.input().where_case() != v1::TensorRef::kInline) return ReadOnly(request_.input());
  return Writable(request_.input(), response_->mutable_output());
}

absl::StatusOr<Tensor> CollectiveRequest::BroadcastTensor(bool root) {
  return root ? ReadOnly(request_.input())
              : Writable(request_.input(), response_->mutable_output());
}

absl::StatusOr<Tensor> CollectiveRequest::ReadOnly(const v1::TensorRef& ref) {
  if (ref.where_case() != v1::TensorRef::kInline) return Resident(ref);
  if (ref.on_device()) return Empty(ref);
  COHORT_ASSIGN_OR_RETURN(const TensorLayout layout, ReadLayout(ref.layout()));
  if (!layout.contiguous || static_cast<size_t>(layout.bytes) != ref.inline_().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an inline tensor of ", NameOf(layout.type), " ", FormatShape(layout.shape),
        " is contiguous and has ", layout.bytes, " bytes; ", ref.inline_().size(), " came"));
  }
  bytes_ = std::max(bytes_, layout.bytes);
  // Nobody writes to it: only inputs of verbs lie there.
  return Tensor(const_cast<char*>(ref.inline_().data()), layout.type, layout.shape);
}

absl::StatusOr<Tensor> CollectiveRequest::Writable(const v1::TensorRef& ref,
                                                   std::string* inline_bytes) {
  if (ref.where_case() != v1::TensorRef::kInline) return Resident(ref);
  if (ref.on_device()) return Empty(ref);
  COHORT_ASSIGN_OR_RETURN(const TensorLayout layout, ReadLayout(ref.layout()));
  if (!layout.contiguous) {
    return absl::InvalidArgumentError("an inline tensor is contiguous");
  }
  if (layout.bytes > inline_left_) {
    return absl::ResourceExhaustedError(absl::StrCat("an inline output of ", layout.bytes,
                                                     " bytes, where --max-message-bytes ",
                                                     "leaves room for ", inline_left_));
  }
  inline_left_ -= layout.bytes;
  bytes_ = std::max(bytes_, layout.bytes);
  inline_bytes->resize(static_cast<size_t>(layout.bytes));
  return Tensor(&(*inline_bytes)[0], layout.type, layout.shape);
}

absl::StatusOr<Tensor> CollectiveRequest::Resident(const v1::TensorRef& ref) {
  if (ref.where_case() != v1::TensorRef::kTensor) {
    return absl::InvalidArgumentError("a tensor is neither inline nor one of the session's");
  }
  COHORT_ASSIGN_OR_RETURN(const TensorLayout layout, ReadLayout(ref.layout()));
  COHORT_ASSIGN_OR_RETURN(TensorMemory memory, tensors_.Find(ref.tensor()));
  bytes_ = std::max(bytes_, layout.bytes);
  if (request_.has_stream() || memory.device.is_cuda()) owners_.push_back(memory.owner);
  return ViewOf(memory.data, memory.bytes, layout, ref.first(), std::move(memory.owner),
                memory.device);
}

absl::StatusOr<Tensor> CollectiveRequest::Empty(const v1::TensorRef& ref) const {
  COHORT_ASSIGN_OR_RETURN(const TensorLayout layout, ReadLayout(ref.layout()));
  if (layout.bytes > 0) {
    return absl::InvalidArgumentError("an inline tensor on a device has no elements");
  }
  return Tensor::Strided(nullptr, layout.type, layout.shape, layout.strides, nullptr, device_);
}

absl::StatusOr<Reduction> CollectiveRequest::ReadReduction() const {
  if (!IsReduceOp(request_.reduce_op())) {
    return absl::InvalidArgumentError(
        absl::StrCat(request_.reduce_op(), " is not the number of a reduction"));
  }
  Reduction reduction{static_cast<ReduceOp>(request_.reduce_op())};
  // Of others it says nothing, and programs may not set it.
  if (reduction.op == ReduceOp::kPreMulSum) reduction.scale = request_.scale();
  return reduction;
}

const char* NameOf(v1::TensorVerb verb) {
  switch (verb) {
    case v1::TENSOR_VERB_ALL_REDUCE:
      return "all_reduce";
    case v1::TENSOR_VERB_REDUCE:
      return "reduce";
    case v1::TENSOR_VERB_BROADCAST:
      return "broadcast";
    case v1::TENSOR_VERB_ALL_GATHER:
      return "all_gather";
    case v1::TENSOR_VERB_REDUCE_SCATTER:
      return "reduce_scatter";
    case v1::TENSOR_VERB_ALL_TO_ALL:
      return "all_to_all";
    case v1::TENSOR_VERB_GATHER:
      return "gather";
    case v1::TENSOR_VERB_SCATTER:
      return "scatter";
    case v1::TENSOR_VERB_ALL_GATHER_V:
      return "all_gather_v";
    case v1::TENSOR_VERB_REDUCE_SCATTER_V:
      return "reduce_scatter_v";
    case v1::TENSOR_VERB_GATHER_V:
      return "gather_v";
    case v1::TENSOR_VERB_ALL_TO_ALL_V:
      return "all_to_all_v";
    case v1::TENSOR_VERB_EXCHANGE_SIZES:
      return "exchange_sizes";
    case v1::TENSOR_VERB_BARRIER:
      return "barrier";
    case v1::TENSOR_VERB_EXCHANGE:
      return "exchange";
    case v1::TENSOR_VERB_AWAIT_STREAMS:
      return "await_streams";
    case v1::TENSOR_VERB_AWAIT_MESSAGE:
      return "await_message";
    case v1::TENSOR_VERB_REFUSE:
      return "refuse";
    default:
      return "unknown";
  }
}

const char* NameOf(v1::ObjectVerb verb) {
  switch (verb) {
    case v1::OBJECT_VERB_SEND:
      return "send_object";
    case v1::OBJECT_VERB_RECEIVE:
      return "receive_object";
    case v1::OBJECT_VERB_BROADCAST:
      return "broadcast_object";
    case v1::OBJECT_VERB_ALL_GATHER:
      return "all_gather_objects";
    case v1::OBJECT_VERB_BARRIER:
      return "object_barrier";
    default:
      return "unknown";
  }
}

}  // namespace cohort::worker
