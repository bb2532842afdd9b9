#include "client/collective/remote/call_tensors.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::client {
namespace {

void SetLayout(const Tensor& tensor, bool contiguous, v1::TensorRef* ref) {
  v1::TensorLayout& layout = *ref->mutable_layout();
  layout.set_data_type(static_cast<int>(tensor.type()));
  layout.mutable_shape()->Add(tensor.shape().begin(), tensor.shape().end());
  if (!contiguous) {
    layout.mutable_strides()->Add(tensor.strides().begin(), tensor.strides().end());
  }
}

Tensor View(const WorkerSessionImpl::Scratch& scratch, const Tensor& like) {
  return Tensor(scratch.data, like.type(), like.shape());
}

}  // namespace

absl::Status CheckInHostMemory(const Tensor& tensor) {
  if (tensor.device().is_host()) return absl::OkStatus();
  return NoGpus(tensor.ToString());
}

absl::Status NoGpus(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      what, ": a RemoteGroup moves host memory only; use LocalGroup or AttachedGroup for GPUs"));
}

CallTensors::CallTensors(WorkerSessionImpl& session, Instant deadline)
    : session_(session),
      deadline_(deadline),
      // The other half is for the rest of a message, which is small.
      request_left_(session.max_message_bytes() / 2),
      response_left_(session.max_message_bytes() / 2) {}

CallTensors::~CallTensors() {
  for (const WorkerSessionImpl::Scratch& scratch : scratch_) session_.GiveBack(scratch, reusable_);
}

absl::Duration CallTensors::Left() const {
  return std::max(deadline_ - Clock::Steady().Now(), absl::ZeroDuration());
}

bool CallTensors::Resident(const Tensor& tensor, v1::TensorRef* ref) const {
  const std::optional<WorkerSessionImpl::Location> location = session_.Find(tensor);
  if (!location.has_value()) return false;
  SetLayout(tensor, tensor.contiguous(), ref);
  ref->set_tensor(location->tensor);
  ref->set_first(location->first);
  return true;
}

bool CallTensors::FitsInline(int64_t bytes, int64_t& left) const {
  if (bytes > left || (session_.attached() != nullptr && bytes > session_.inline_bytes()))
    return false;
  left -= bytes;
  return true;
}

absl::StatusOr<size_t> CallTensors::TakeScratch(const Tensor& tensor, v1::TensorRef* ref) {
  COHORT_ASSIGN_OR_RETURN(const WorkerSessionImpl::Scratch scratch,
                          session_.TakeScratch(tensor.bytes()));
  scratch_.push_back(scratch);
  SetLayout(tensor, /*contiguous=*/true, ref);
  ref->set_tensor(scratch.tensor);
  return scratch_.size() - 1;
}

absl::Status CallTensors::Upload(const Tensor& tensor, size_t scratch) {
  if (scratch_[scratch].data != nullptr) return CopyTensor(tensor, View(scratch_[scratch], tensor));
  return session_.WriteTensor(scratch_[scratch].tensor, Packed(tensor).data(), tensor.bytes(),
                              Left());
}

absl::Status CallTensors::AddInput(const Tensor& tensor, v1::TensorRef* ref) {
  COHORT_RETURN_IF_ERROR(CheckInHostMemory(tensor));
  if (Resident(tensor, ref)) return absl::OkStatus();
  const int64_t bytes = tensor.bytes();
  if (FitsInline(bytes, request_left_)) {
    SetLayout(tensor, /*contiguous=*/true, ref);
    ref->set_inline_(Packed(tensor).data(), static_cast<size_t>(bytes));
    return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(const size_t scratch, TakeScratch(tensor, ref));
  return Upload(tensor, scratch);
}

absl::Status CallTensors::AddOutput(const Tensor& tensor, v1::TensorRef* ref) {
  COHORT_RETURN_IF_ERROR(CheckInHostMemory(tensor));
  if (Resident(tensor, ref)) return absl::OkStatus();
  if (FitsInline(tensor.bytes(), response_left_)) {
    SetLayout(tensor, /*contiguous=*/true, ref);
    ref->set_inline_("");
    outputs_.push_back({tensor, true, 0});
    return absl::OkStatus();
  }
  COHORT_ASSIGN_OR_RETURN(const size_t scratch, TakeScratch(tensor, ref));
  outputs_.push_back({tensor, false, scratch});
  return absl::OkStatus();
}

absl::Status CallTensors::AddInOut(const Tensor& tensor, v1::TensorRef* ref) {
  const size_t scratch = scratch_.size();
  // Elements that travel with the call travel both ways.
  const int64_t only_in_request = std::max<int64_t>(request_left_ - response_left_, 0);
  request_left_ -= only_in_request;
  const absl::Status added = AddInput(tensor, ref);
  request_left_ += only_in_request;
  COHORT_RETURN_IF_ERROR(added);
  if (ref->where_case() == v1::TensorRef::kInline) {
    response_left_ -= tensor.bytes();
    outputs_.push_back({tensor, true, 0});
  } else if (scratch_.size() > scratch) {
    outputs_.push_back({tensor, false, scratch});
  }
  return absl::OkStatus();
}

absl::Status CallTensors::Finish(const std::vector<const std::string*>& inline_outputs) {
  reusable_ = true;
  size_t next = 0;
  for (const Output& output : outputs_) {
    const Tensor& to = output.tensor;
    if (!output.is_inline) {
      const WorkerSessionImpl::Scratch& scratch = scratch_[output.scratch];
      if (scratch.data != nullptr) {
        COHORT_RETURN_IF_ERROR(CopyTensor(View(scratch, to), to));
      } else if (to.contiguous()) {
        COHORT_RETURN_IF_ERROR(session_.ReadTensor(scratch.tensor, to.data(), to.bytes(), Left()));
      } else {
        const Tensor packed = Tensor::Uninitialized(to.type(), to.shape());
        COHORT_RETURN_IF_ERROR(
            session_.ReadTensor(scratch.tensor, packed.data(), to.bytes(), Left()));
        COHORT_RETURN_IF_ERROR(CopyTensor(packed, to));
      }
      continue;
    }
    const std::string* const bytes = next < inline_outputs.size() ? inline_outputs[next] : nullptr;
    ++next;
    if (bytes == nullptr || static_cast<int64_t>(bytes->size()) != to.bytes()) {
      return absl::InternalError(
          absl::StrCat(session_.worker(), " sent another number of bytes than the output has"));
    }
    COHORT_RETURN_IF_ERROR(
        CopyTensor(Tensor(const_cast<char*>(bytes->data()), to.type(), to.shape()), to));
  }
  return absl::OkStatus();
}

}  // namespace cohort::client
