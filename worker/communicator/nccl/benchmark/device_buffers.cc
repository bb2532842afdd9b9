#include "worker/communicator/nccl/benchmark/device_buffers.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/cuda/memory/copy.h"

namespace cohort::benchmark {
namespace {

using worker::cuda::DeviceMemory;
using worker::cuda::Stream;

constexpr int64_t kLooked = 64 << 10;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

// Returns numbers whose sums are all exact.
std::string Numbers(int64_t bytes) {
  std::vector<float> numbers(static_cast<size_t>(bytes) / sizeof(float));
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(i % 4093);
  return std::string(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
}

}  // namespace

absl::StatusOr<DeviceBuffers> DeviceBuffers::Allocate(int64_t most_bytes) {
  const auto bytes = static_cast<size_t>(most_bytes);
  COHORT_ASSIGN_OR_RETURN(Stream stream, Stream::Create(kBenchmarkDevice));
  COHORT_ASSIGN_OR_RETURN(DeviceMemory input, DeviceMemory::Allocate(kBenchmarkDevice, bytes));
  COHORT_ASSIGN_OR_RETURN(DeviceMemory output, DeviceMemory::Allocate(kBenchmarkDevice, bytes));
  return DeviceBuffers(std::move(stream), std::move(input), std::move(output));
}

DeviceBuffers::DeviceBuffers(Stream stream, DeviceMemory input, DeviceMemory output)
    : stream_(std::move(stream)), input_(std::move(input)), output_(std::move(output)) {}

absl::Status DeviceBuffers::Fill(int64_t bytes) {
  const std::string numbers = Numbers(bytes);
  COHORT_RETURN_IF_ERROR(
      worker::cuda::Copy(input_.data(), numbers.data(), numbers.size(), stream_.get()));
  COHORT_RETURN_IF_ERROR(
      worker::cuda::Fill(output_.data(), 0xA5, static_cast<size_t>(bytes), stream_.get()));
  return worker::cuda::Synchronize(stream_.get(), Soon());
}

absl::Status DeviceBuffers::Verify(int64_t bytes) const {
  const auto looked = static_cast<size_t>(std::min(bytes, kLooked));
  for (const int64_t at : {int64_t{0}, bytes - static_cast<int64_t>(looked)}) {
    std::string expected(looked, '\0');
    std::string result(looked, '\0');
    COHORT_RETURN_IF_ERROR(
        worker::cuda::Copy(expected.data(), input_.data() + at, looked, stream_.get()));
    COHORT_RETURN_IF_ERROR(
        worker::cuda::Copy(result.data(), output_.data() + at, looked, stream_.get()));
    COHORT_RETURN_IF_ERROR(worker::cuda::Synchronize(stream_.get(), Soon()));
    if (result == expected) continue;
    return absl::DataLossError(
        absl::StrCat("the result of ", bytes, " bytes differs from the input after byte ", at));
  }
  return absl::OkStatus();
}

}  // namespace cohort::benchmark
