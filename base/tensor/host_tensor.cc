#include "base/tensor/host_tensor.h"

#include <unistd.h>

#include <cstdint>
#include <memory>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

constexpr std::align_val_t kAlignment{64};

// The memory of this machine.
int64_t MemoryBytes() {
  static const int64_t bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  return bytes;
}

}  // namespace

absl::StatusOr<Tensor> NewHostTensor(DataType type, const Shape& shape) {
  for (const int64_t extent : shape) {
    if (extent >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of ", FormatShape(shape), ": an extent is negative"));
  }
  const bool fits = CountableBytes(type, shape).has_value();
  const int64_t bytes = fits ? ElementCount(shape) * SizeOf(type) : 0;
  if (!fits || bytes > MemoryBytes()) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for ", NameOf(type), " ",
                                                     FormatShape(shape), ": this machine has ",
                                                     MemoryBytes(), " bytes"));
  }
  void* const data = ::operator new(static_cast<size_t>(bytes), kAlignment, std::nothrow);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for ", NameOf(type), " ", FormatShape(shape)));
  }
  std::shared_ptr<const void> owner(
      data, [](const void* memory) { ::operator delete(const_cast<void*>(memory), kAlignment); });
  return Tensor(data, type, shape, std::move(owner));
}

}  // namespace cohort
