#include "client/collective/remote/stream_calls.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::client {
namespace {

// A size for which the worker gives whole pages.
constexpr int64_t kFlagsBytes = int64_t{64} << 10;

}  // namespace

absl::StatusOr<StreamFlags*> StreamCalls::Prepare() {
  if (memory_.count() == 0) {
    if (session_.attached() == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(session_.worker(), " shares no memory with this process, which streams ",
                       "need: ", session_.why_not_attached()));
    }
    COHORT_ASSIGN_OR_RETURN(const Tensor memory,
                            session_.CreateTensor(DataType::kU8, {kFlagsBytes}));
    const std::optional<WorkerSessionImpl::Location> location = session_.Find(memory);
    if (!location.has_value()) return absl::InternalError("the worker's memory is not found");
    std::fill_n(static_cast<char*>(memory.data()), kFlagsBytes, '\0');
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<StreamFlags> flags,
                            gpu_->Pin(memory.data(), kFlagsBytes));
    memory_ = memory;
    order_.set_flags(location->tensor);
    MutexLock lock(&release_mutex_);
    flags_ = std::move(flags);
  }
  MutexLock lock(&release_mutex_);
  if (released_) return absl::AbortedError(absl::StrCat(session_.worker(), " is gone"));
  return flags_.get();
}

absl::Status StreamCalls::Run(void* stream,
                              absl::FunctionRef<absl::Status(const v1::StreamOrder&)> body) {
  MutexLock lock(&call_mutex_);
  COHORT_ASSIGN_OR_RETURN(StreamFlags* const flags, Prepare());
  // Calls on different streams also run in the order of the calls, and set their numbers in that
  // order.
  if (last_stream_.has_value() && *last_stream_ != stream) {
    COHORT_RETURN_IF_ERROR(flags->Await(stream, kClientIsThere, last_set_));
  }
  order_.set_number(order_.number() + 1);
  COHORT_RETURN_IF_ERROR(flags->Set(stream, kClientIsThere, order_.number()));
  last_stream_ = stream;
  last_set_ = order_.number();
  COHORT_RETURN_IF_ERROR(body(order_));
  return flags->Await(stream, kCallIsDone, order_.number());
}

void StreamCalls::Release() {
  MutexLock lock(&release_mutex_);
  if (released_) return;
  released_ = true;
  if (flags_ != nullptr) flags_->Release(kCallIsDone);
}

}  // namespace cohort::client
