#include "worker/daemon/tensors/tensor_table.h"

#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

absl::Status Unknown(uint64_t tensor) {
  return absl::NotFoundError(absl::StrCat("this session has no tensor ", tensor));
}

}  // namespace

absl::StatusOr<uint64_t> TensorTable::Add(TensorMemory memory) {
  MutexLock lock(&mutex_);
  if (closed_) return absl::FailedPreconditionError("the session has ended");
  if (tensors_.size() >= kMaxTensors) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this session has ", kMaxTensors, " tensors, as many as one may have"));
  }
  bytes_ += memory.bytes;
  tensors_[++last_] = std::move(memory);
  return last_;
}

absl::StatusOr<TensorMemory> TensorTable::Find(uint64_t tensor) const {
  MutexLock lock(&mutex_);
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) return Unknown(tensor);
  return found->second;
}

absl::Status TensorTable::Free(uint64_t tensor) {
  TensorMemory freed;  // after unlock
  MutexLock lock(&mutex_);
  const auto found = tensors_.find(tensor);
  if (found == tensors_.end()) return Unknown(tensor);
  freed = std::move(found->second);
  bytes_ -= freed.bytes;
  tensors_.erase(found);
  return absl::OkStatus();
}

void TensorTable::Close() {
  std::map<uint64_t, TensorMemory> freed;  // after unlock
  MutexLock lock(&mutex_);
  closed_ = true;
  bytes_ = 0;
  freed.swap(tensors_);
}

int64_t TensorTable::count() const {
  MutexLock lock(&mutex_);
  return static_cast<int64_t>(tensors_.size());
}

int64_t TensorTable::bytes() const {
  MutexLock lock(&mutex_);
  return bytes_;
}

}  // namespace cohort::worker
