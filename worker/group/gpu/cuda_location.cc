#include "worker/group/gpu/cuda_location.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/tensor/copy_plan.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/memory/device_memory.h"

namespace cohort::worker {
namespace {

// Whether copies of `run` bytes along the axis do not overlap, so that they are rows of a plane.
bool IsRows(const CopyAxis& axis, int64_t run) { return axis.from >= run && axis.to >= run; }

absl::Status CopyRuns(const char* from, char* to, const CopyAxis* axes, size_t count, int64_t run,
                      cudaStream_t stream) {
  if (count == 0) return cuda::Copy(to, from, static_cast<size_t>(run), stream);
  if (count == 1 && IsRows(axes[0], run)) {
    return cuda::CopyRows(to, static_cast<size_t>(axes[0].to), from,
                          static_cast<size_t>(axes[0].from), static_cast<size_t>(run),
                          static_cast<size_t>(axes[0].extent), stream);
  }
  for (int64_t i = 0; i < axes[0].extent; ++i) {
    COHORT_RETURN_IF_ERROR(
        CopyRuns(from + i * axes[0].from, to + i * axes[0].to, axes + 1, count - 1, run, stream));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Tensor> AllocateOnDevice(int device, DataType type, const Shape& shape) {
  for (const int64_t extent : shape) {
    if (extent < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("a tensor of ", FormatShape(shape), ": an extent is negative"));
    }
  }
  const auto bytes = static_cast<size_t>(ElementCount(shape) * SizeOf(type));
  COHORT_ASSIGN_OR_RETURN(cuda::DeviceMemory memory, cuda::DeviceMemory::Allocate(device, bytes));
  auto owner = std::make_shared<cuda::DeviceMemory>(std::move(memory));
  char* const data = owner->data();
  return Tensor(data, type, shape, std::move(owner), Device::Cuda(device));
}

absl::StatusOr<std::unique_ptr<CudaLocation>> CudaLocation::Create(int device,
                                                                   cudaStream_t stream) {
  COHORT_ASSIGN_OR_RETURN(cuda::Event done, cuda::Event::Create(device));
  return absl::WrapUnique(new CudaLocation(device, stream, std::move(done)));
}

absl::StatusOr<Tensor> CudaLocation::Allocate(DataType type, const Shape& shape) {
  return AllocateOnDevice(device_, type, shape);
}

absl::Status CopyOnStream(const Tensor& from, const Tensor& to, cudaStream_t stream) {
  COHORT_RETURN_IF_ERROR(CheckCopy(from, to));
  if (from.count() == 0) return absl::OkStatus();
  if (from.data() == to.data() && from.strides() == to.strides()) return absl::OkStatus();
  CopyPlan plan = PlanCopy(from, to);
  // The longest axis that can be rows goes last, for the fewest operations.
  const auto longest = std::max_element(
      plan.axes.begin(), plan.axes.end(), [&](const CopyAxis& a, const CopyAxis& b) {
        return (IsRows(a, plan.run) ? a.extent : 0) < (IsRows(b, plan.run) ? b.extent : 0);
      });
  if (longest != plan.axes.end()) std::rotate(longest, longest + 1, plan.axes.end());
  return CopyRuns(plan.from, plan.to, plan.axes.data(), plan.axes.size(), plan.run, stream);
}

absl::Status CudaLocation::Clear(void* memory, int64_t bytes) {
  return cuda::Fill(memory, 0, static_cast<size_t>(bytes), stream_);
}

absl::StatusOr<Tensor> CudaStreamLocation::Allocate(DataType type, const Shape& shape) {
  if (kept_ != nullptr) {
    COHORT_ASSIGN_OR_RETURN(Tensor tensor, AllocateOnDevice(device_, type, shape));
    kept_->push_back(tensor);
    return tensor;
  }
  const auto bytes = static_cast<size_t>(ElementCount(shape) * SizeOf(type));
  COHORT_ASSIGN_OR_RETURN(cuda::StreamMemory memory, cuda::StreamMemory::Allocate(stream_, bytes));
  auto owner = std::make_shared<cuda::StreamMemory>(std::move(memory));
  char* const data = owner->data();
  return Tensor(data, type, shape, std::move(owner), Device::Cuda(device_));
}

absl::Status CudaStreamLocation::Clear(void* memory, int64_t bytes) {
  return cuda::Fill(memory, 0, static_cast<size_t>(bytes), stream_);
}

absl::Status CudaLocation::Finish(Instant deadline) {
  COHORT_RETURN_IF_ERROR(done_.Record(stream_));
  return done_.Wait(deadline);
}

}  // namespace cohort::worker
