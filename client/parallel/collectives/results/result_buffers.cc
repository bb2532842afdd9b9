#include "client/parallel/collectives/results/result_buffers.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "client/parallel/collectives/results/allocate.h"

namespace cohort::parallel {

struct Buffers::State {
  explicit State(client::Group* group) : group(*group) {}

  client::Group& group;
  Mutex mutex;
  std::vector<Tensor> free ABSL_GUARDED_BY(mutex);  // flat, u8, the smallest first
  Counts counts ABSL_GUARDED_BY(mutex);

  void Put(Tensor buffer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex) {
    const auto behind =
        std::upper_bound(free.begin(), free.end(), buffer.bytes(),
                         [](int64_t bytes, const Tensor& other) { return bytes < other.bytes(); });
    free.insert(behind, std::move(buffer));
    ++counts.free;
  }
  std::optional<Tensor> Find(int64_t bytes, Device device) ABSL_LOCKS_EXCLUDED(mutex) {
    MutexLock lock(&mutex);
    const auto found = std::find_if(free.begin(), free.end(), [&](const Tensor& one) {
      return one.bytes() >= bytes && one.device() == device;
    });
    if (found == free.end()) {
      ++counts.missed;
      return std::nullopt;
    }
    Tensor buffer = std::move(*found);
    free.erase(found);
    --counts.free;
    ++counts.in_use;
    return buffer;
  }
};

absl::StatusOr<Buffers> Buffers::Prepare(client::Group& group, absl::Span<const TensorSpec> specs) {
  auto state = std::make_shared<State>(&group);
  for (const TensorSpec& spec : specs) {
    COHORT_ASSIGN_OR_RETURN(const Tensor tensor,
                            Allocate(group, spec.type, spec.shape, spec.device));
    // The first touch of a page costs more than any copy to it.
    if (spec.device.is_host() && tensor.bytes() > 0) {
      std::memset(tensor.data(), 0, static_cast<size_t>(tensor.bytes()));
    }
    if (tensor.bytes() == 0) continue;
    MutexLock lock(&state->mutex);
    state->Put(
        Tensor(tensor.data(), DataType::kU8, {tensor.bytes()}, tensor.owner(), tensor.device()));
  }
  return Buffers(std::move(state));
}

absl::StatusOr<Tensor> Buffers::Take(const TensorSpec& spec) const {
  COHORT_RETURN_IF_ERROR(CheckCountable(spec.type, spec.shape));
  const int64_t bytes = ElementCount(spec.shape) * SizeOf(spec.type);
  std::optional<Tensor> buffer;
  if (bytes > 0) buffer = state_->Find(bytes, spec.device);
  if (!buffer.has_value()) return Allocate(state_->group, spec.type, spec.shape, spec.device);
  void* const data = buffer->data();
  std::shared_ptr<const void> lent(data, [state = state_, buffer = *buffer](const void*) {
    MutexLock lock(&state->mutex);
    --state->counts.in_use;
    state->Put(buffer);
  });
  return Tensor(data, spec.type, spec.shape, std::move(lent), spec.device);
}

Buffers::Counts Buffers::counts() const {
  MutexLock lock(&state_->mutex);
  return state_->counts;
}

}  // namespace cohort::parallel
