// The location of memory: the host or a GPU.
#ifndef COHORT_BASE_TENSOR_DEVICE_H_
#define COHORT_BASE_TENSOR_DEVICE_H_

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort {

// The host, whose memory this process can read, or a GPU.
class Device {
 public:
  constexpr Device() = default;  // the host
  static constexpr Device Host() { return Device(); }
  // The GPU that has the number `index` in CUDA in this process.
  static constexpr Device Cuda(int index) { return Device(static_cast<int16_t>(index)); }

  constexpr bool is_host() const { return index_ == kHost; }
  constexpr bool is_cuda() const { return index_ != kHost; }
  // The number of the GPU. Precondition: is_cuda().
  constexpr int index() const { return index_; }

  // "host" or "cuda:1".
  std::string ToString() const { return is_host() ? "host" : absl::StrCat("cuda:", index_); }

  friend constexpr bool operator==(Device a, Device b) { return a.index_ == b.index_; }
  friend constexpr bool operator!=(Device a, Device b) { return !(a == b); }

 private:
  static constexpr int16_t kHost = -1;
  explicit constexpr Device(int16_t index) : index_(index) {}

  int16_t index_ = kHost;
};

// The memory that a group moves. The numbers travel between processes: they do not change.
enum class Placement : uint8_t {
  kHost = 0,
  kDevice = 1,  // only GPU memory; each rank has one GPU
  kBoth = 2,    // either: the memory of each call's tensors
};

// "host", "device", "both".
constexpr absl::string_view NameOf(Placement placement) {
  switch (placement) {
    case Placement::kHost:
      return "host";
    case Placement::kDevice:
      return "device";
    case Placement::kBoth:
      return "both";
  }
  return "unknown";
}

}  // namespace cohort

#endif  // COHORT_BASE_TENSOR_DEVICE_H_
