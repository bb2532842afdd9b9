#include "worker/service/stream_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// Where the heap gives whole pages.
constexpr int64_t kFlagsBytes = int64_t{64} << 10;
constexpr size_t kPage = 4096;

}  // namespace

absl::Status StreamOrder::Prepare(const TensorMemory& flags) {
  if (memory_.data == nullptr) {
    if (!flags.device.is_host() || flags.bytes != kFlagsBytes ||
        reinterpret_cast<uintptr_t>(flags.data) % kPage != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("flags of streams lie in a tensor of ", kFlagsBytes,
                       " bytes of the session's memory; ", "one of ", flags.bytes, " came"));
    }
    if (stream_ == nullptr) {
      COHORT_ASSIGN_OR_RETURN(stream_, gpu_->NewStream());
    }
    if (own_flags_ == nullptr) {
      own_memory_.reset(static_cast<uint64_t*>(std::aligned_alloc(kPage, kPage)));
      if (own_memory_ == nullptr) return absl::ResourceExhaustedError("no memory for flags");
      std::fill_n(own_memory_.get(), kPage / sizeof(uint64_t), uint64_t{0});
      COHORT_ASSIGN_OR_RETURN(own_flags_, gpu_->Pin(own_memory_.get(), kPage));
    }
    COHORT_ASSIGN_OR_RETURN(std::unique_ptr<client::StreamFlags> pinned,
                            gpu_->Pin(flags.data, flags.bytes));
    memory_ = flags;
    MutexLock lock(&release_mutex_);
    flags_ = std::move(pinned);
  }
  if (flags.data != memory_.data) {
    return absl::InvalidArgumentError("a group has one tensor of flags for its streams");
  }
  MutexLock lock(&release_mutex_);
  if (released_) return absl::AbortedError("its client is gone");
  return absl::OkStatus();
}

absl::Status StreamOrder::Run(const TensorMemory& flags, const v1::StreamOrder& order,
                              absl::FunctionRef<absl::Status(void* stream, Owners* owners)> body) {
  MutexLock lock(&call_mutex_);
  COHORT_RETURN_IF_ERROR(Prepare(flags));
  if (order.number() <= last_) {
    return absl::InvalidArgumentError(
        absl::StrCat("call ", order.number(), " of a stream comes behind call ", last_));
  }
  last_ = order.number();
  ForgetDone();
  // Nobody puts another in its place.
  client::StreamFlags* pinned = nullptr;
  {
    MutexLock release_lock(&release_mutex_);
    pinned = flags_.get();
  }
  COHORT_RETURN_IF_ERROR(pinned->Await(stream_.get(), kClientIsThere, order.number()));
  InFlight call;
  call.number = order.number();
  // Also of a call that was enqueued in part.
  const absl::Status status = body(stream_.get(), &call.owners);
  in_flight_.push_back(std::move(call));
  COHORT_RETURN_IF_ERROR(own_flags_->Set(stream_.get(), kCallIsDone, order.number()));
  COHORT_RETURN_IF_ERROR(pinned->Set(stream_.get(), kCallIsDone, order.number()));
  return status;
}

void StreamOrder::ForgetDone() {
  const uint64_t done = __atomic_load_n(own_memory_.get() + kCallIsDone, __ATOMIC_ACQUIRE);
  while (!in_flight_.empty() && in_flight_.front().number <= done) in_flight_.pop_front();
}

void StreamOrder::Release() {
  MutexLock lock(&release_mutex_);
  if (released_) return;
  released_ = true;
  if (flags_ != nullptr) flags_->Release(kClientIsThere);
}

}  // namespace cohort::worker
