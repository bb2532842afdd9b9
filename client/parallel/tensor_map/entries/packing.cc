#include "client/parallel/tensor_map/entries/packing.h"

#include <algorithm>
#include <cstring>

namespace cohort::parallel {
namespace {

constexpr int64_t kLine = 64;
// The alignment for tensors on GPUs.
constexpr int64_t kGpuLine = 256;
constexpr size_t kCodeBytes = 8;
constexpr size_t kSizeBytes = 8;
constexpr size_t kHeadBytes = kCodeBytes + kSizeBytes;

int64_t RoundUp(int64_t bytes, int64_t line) { return (bytes + line - 1) / line * line; }

bool IsSmallOnGpu(const TensorEntry& entry) {
  return entry.on_gpu && entry.bytes() > 0 && entry.bytes() <= kSmallOnGpu;
}

}  // namespace

Packing Packing::Of(size_t entry_bytes, const std::vector<TensorEntry>& tensors, bool all_of_host) {
  Packing packing;
  packing.front_bytes_ = static_cast<int64_t>(kHeadBytes + entry_bytes);
  // A single one is sent from its own place.
  const bool packs_on_gpu = std::count_if(tensors.begin(), tensors.end(), IsSmallOnGpu) > 1;
  packing.offsets_.reserve(tensors.size());
  for (const TensorEntry& entry : tensors) {
    const int64_t bytes = entry.bytes();
    if (bytes == 0) {
      packing.offsets_.push_back(kEmpty);
    } else if (packs_on_gpu && IsSmallOnGpu(entry)) {
      packing.offsets_.push_back(packing.gpu_bytes_);
      packing.gpu_bytes_ += RoundUp(bytes, kGpuLine);
    } else if (!entry.on_gpu && (bytes <= kSmallOnHost || all_of_host)) {
      const int64_t offset = RoundUp(packing.front_bytes_, kLine);
      packing.offsets_.push_back(offset);
      packing.front_bytes_ = offset + bytes;
    } else {
      packing.offsets_.push_back(kAlone);
      ++packing.alone_;
    }
  }
  return packing;
}

Tensor Packing::ViewOf(size_t index, const TensorEntry& entry, const Tensor& memory) const {
  return Tensor(static_cast<char*>(memory.data()) + offsets_[index], entry.type, entry.shape,
                memory.owner(), memory.device());
}

void WriteEntries(absl::string_view entries, const Tensor& front) {
  char* const to = static_cast<char*>(front.data());
  std::memset(to, 0, kHeadBytes);
  for (size_t i = 0; i < kSizeBytes; ++i) {
    to[kCodeBytes + i] = static_cast<char>(entries.size() >> 8 * i);
  }
  std::memcpy(to + kHeadBytes, entries.data(), entries.size());
}

std::string EncodeError(const absl::Status& why) {
  std::string error(kCodeBytes, '\0');
  error[0] = static_cast<char>(why.code());
  error.append(why.message().data(), why.message().size());
  return error;
}

absl::Status DecodeError(absl::string_view error) {
  if (error.size() < kCodeBytes || error[0] == 0) {
    return absl::InvalidArgumentError("malformed tensor map");
  }
  return absl::Status(static_cast<absl::StatusCode>(error[0]), error.substr(kCodeBytes));
}

absl::StatusOr<absl::string_view> EntriesIn(const Tensor& front) {
  const absl::string_view bytes(static_cast<const char*>(front.data()),
                                static_cast<size_t>(front.bytes()));
  if (!bytes.empty() && bytes[0] != 0) return DecodeError(bytes);
  uint64_t size = 0;
  if (bytes.size() >= kHeadBytes) {
    for (size_t i = 0; i < kSizeBytes; ++i) {
      size |= uint64_t{static_cast<uint8_t>(bytes[kCodeBytes + i])} << 8 * i;
    }
  }
  if (bytes.size() < kHeadBytes || size > bytes.size() - kHeadBytes) {
    return absl::InvalidArgumentError("malformed tensor map");
  }
  return bytes.substr(kHeadBytes, size);
}

}  // namespace cohort::parallel
