#include "worker/daemon/methods/collective_request.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "worker/daemon/tensors/tensor_layout.h"

namespace cohort::worker {
namespace {

using client::CallOptions;
using client::Sizes;
using client::TensorTransfer;

constexpr int kMaxTransfers = 65536;
constexpr int kMaxTensors = 65536;
constexpr size_t kMostSaid = 4096;
// Requests and outputs that are not larger are not counted: their calls have threads, which take
// more.
constexpr int64_t kSmallBytes = 1024;
// A tensor of a request, besides its message: at most 16 dimensions with their strides.
constexpr int64_t kBytesOfTensor = 512;

Sizes ToSizes(const google::protobuf::RepeatedField<int64_t>& sizes) {
  return Sizes(sizes.begin(), sizes.end());
}

// Converts numbers to ranks. A number that is no rank in any group does not become one.
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
                                     v1::RunCollectiveResponse* response, HeldQuota& memory)
    : tensors_(tensors),
      inline_left_(max_inline_bytes),
      request_(request),
      collective_(CollectiveOf(request.collective())),
      response_(response),
      memory_(memory) {}

absl::Status CollectiveRequest::CountRequest() {
  if (static_cast<int64_t>(request_.ByteSizeLong()) <= kSmallBytes) return absl::OkStatus();
  const int64_t tensors = int64_t{request_.transfers_size()} + 2 * int64_t{request_.tensors_size()};
  return memory_.Add(static_cast<int64_t>(request_.SpaceUsedLong()) + tensors * kBytesOfTensor,
                     "the request of a call");
}

absl::Status CollectiveRequest::CountOutput(int64_t bytes) {
  small_outputs_ += bytes;
  if (small_outputs_ <= kSmallBytes) return absl::OkStatus();
  const absl::Status counted = memory_.Add(std::exchange(small_outputs_, 0), "an inline output");
  has_room_ = counted.ok();
  return counted;
}

absl::Status CollectiveRequest::Run(client::Group& group, const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(CountRequest());
  const absl::Status read = ReadArguments(group.rank());
  if (read.ok()) return RunCollective(group, options);
  // The wait for the other ranks would hold the request.
  if (!has_room_) return read;
  return group.FailCollectiveAs(read, options);
}

absl::Status CollectiveRequest::ReadArguments(int rank) {
  if (!MovesTensors(collective_)) return absl::OkStatus();
  Reduction reduction;
  if (Reduces(collective_)) {
    COHORT_ASSIGN_OR_RETURN(reduction, ReadReduction());
  }
  if (collective_ == Collective::kAllReduceCoalesced) {
    if (request_.tensors_size() > kMaxTensors) {
      return absl::InvalidArgumentError(absl::StrCat(
          "all_reduce_coalesced of ", request_.tensors_size(), " tensors; at most ", kMaxTensors));
    }
    for (const v1::TensorPair& pair : request_.tensors()) {
      COHORT_ASSIGN_OR_RETURN(Tensor input, ReadOnly(pair.input()));
      const v1::TensorRef& ref = pair.in_place() ? pair.input() : pair.output();
      const bool is_inline = ref.where_case() == v1::TensorRef::kInline;
      COHORT_ASSIGN_OR_RETURN(Tensor output,
                              Writable(ref, is_inline ? response_->add_received() : nullptr));
      call_.inputs.push_back(std::move(input));
      call_.outputs.push_back(std::move(output));
    }
    if (!call_.inputs.empty()) call_.input = call_.inputs[0];
    if (!call_.outputs.empty()) call_.output = call_.outputs[0];
  } else if (collective_ == Collective::kBroadcast) {
    COHORT_ASSIGN_OR_RETURN(call_.input, BroadcastTensor(request_.root() == rank));
    call_.output = call_.input;
  } else {
    COHORT_ASSIGN_OR_RETURN(call_.input, Input());
    COHORT_ASSIGN_OR_RETURN(call_.output, Output());
  }
  call_.call = MakeCall(collective_, call_.input, call_.output);
  call_.call.dim = request_.dim();
  if (HasRoot(collective_)) call_.call.root = request_.root();
  call_.call.reduction = reduction;
  call_.sizes = ToSizes(request_.sizes());
  call_.output_sizes = ToSizes(request_.output_sizes());
  if (!call_.inputs.empty()) bytes_ = BytesOf(call_.View(), call_.input, call_.output);
  return absl::OkStatus();
}

absl::Status CollectiveRequest::RunCollective(client::Group& group, const CallOptions& options) {
  const v1::RunCollectiveRequest& request = request_;
  if (MovesTensors(collective_)) {
    return group.Run(call_.View(), call_.input, call_.output, options);
  }
  switch (collective_) {
    case Collective::kExchangeSizes: {
      COHORT_ASSIGN_OR_RETURN(const Sizes sizes, group.ExchangeSizes(request.own_size(), options));
      response_->mutable_sizes()->Add(sizes.begin(), sizes.end());
      return absl::OkStatus();
    }
    case Collective::kBarrier:
      return group.Barrier(options);
    case Collective::kExchange:
      return Exchange(group, options);
    case Collective::kAwaitMessage: {
      COHORT_ASSIGN_OR_RETURN(const MessageInfo message,
                              group.AwaitMessage(ToRanks(request.sizes()), options));
      response_->add_sizes(message.peer);
      response_->add_sizes(static_cast<int>(message.type));
      response_->add_sizes(message.count);
      return absl::OkStatus();
    }
    case Collective::kFail:
      if (request.why().size() > kMostSaid) {
        return absl::InvalidArgumentError(absl::StrCat("why: ", request.why().size(), " bytes"));
      }
      return group.FailCollective(absl::InvalidArgumentError(Printable(request.why())), options);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(request.collective(), " is not the number of a collective"));
  }
}

absl::Status CollectiveRequest::Exchange(client::Group& group, const CallOptions& options) {
  if (request_.transfers_size() > kMaxTransfers) {
    return absl::InvalidArgumentError(
        absl::StrCat(request_.transfers_size(), " transfers; at most ", kMaxTransfers));
  }
  std::vector<TensorTransfer> transfers;
  for (const v1::TensorTransfer& one : request_.transfers()) {
    const bool is_inline = one.tensor().where_case() == v1::TensorRef::kInline;
    COHORT_ASSIGN_OR_RETURN(
        Tensor tensor,
        one.sends() ? ReadOnly(one.tensor())
                    : Writable(one.tensor(), is_inline ? response_->add_received() : nullptr));
    transfers.push_back({one.sends(), one.peer(), std::move(tensor)});
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
  COHORT_ASSIGN_OR_RETURN(const TensorLayout layout, ReadLayout(ref.layout()));
  if (!layout.contiguous || static_cast<size_t>(layout.bytes) != ref.inline_().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "an inline tensor of ", NameOf(layout.type), " ", FormatShape(layout.shape),
        " is contiguous and has ", layout.bytes, " bytes; ", ref.inline_().size(), " came"));
  }
  bytes_ = std::max(bytes_, layout.bytes);
  // Only inputs lie in a request, and collectives do not write to inputs.
  return Tensor(const_cast<char*>(ref.inline_().data()), layout.type, layout.shape);
}

absl::StatusOr<Tensor> CollectiveRequest::Writable(const v1::TensorRef& ref,
                                                   std::string* inline_bytes) {
  if (ref.where_case() != v1::TensorRef::kInline) return Resident(ref);
  COHORT_ASSIGN_OR_RETURN(const TensorLayout layout, ReadLayout(ref.layout()));
  if (!layout.contiguous) {
    return absl::InvalidArgumentError("an inline tensor is contiguous");
  }
  if (layout.bytes > inline_left_) {
    return absl::ResourceExhaustedError(absl::StrCat("an inline output of ", layout.bytes,
                                                     " bytes, where --max-message-bytes ",
                                                     "leaves room for ", inline_left_));
  }
  COHORT_RETURN_IF_ERROR(CountOutput(layout.bytes));
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
  return ViewOf(memory.data, memory.bytes, layout, ref.first(), std::move(memory.owner));
}

absl::StatusOr<Reduction> CollectiveRequest::ReadReduction() const {
  if (!IsReduceOp(request_.reduce_op())) {
    return absl::InvalidArgumentError(
        absl::StrCat(request_.reduce_op(), " is not the number of a reduction"));
  }
  Reduction reduction{static_cast<ReduceOp>(request_.reduce_op())};
  // Only this operation has a scale; for others programs may leave it unset.
  if (reduction.op == ReduceOp::kPreMulSum) reduction.scale = request_.scale();
  return reduction;
}

const char* NameOf(v1::ObjectOperation operation) {
  switch (operation) {
    case v1::OBJECT_OPERATION_SEND:
      return "send_object";
    case v1::OBJECT_OPERATION_RECEIVE:
      return "receive_object";
    case v1::OBJECT_OPERATION_BROADCAST:
      return "broadcast_object";
    case v1::OBJECT_OPERATION_ALL_GATHER:
      return "all_gather_objects";
    case v1::OBJECT_OPERATION_BARRIER:
      return "object_barrier";
    default:
      return "unknown";
  }
}

}  // namespace cohort::worker
