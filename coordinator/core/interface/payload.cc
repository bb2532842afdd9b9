#include "coordinator/core/interface/payload.h"

#include <zlib.h>

namespace cohort::coordinator {

uint32_t Payload::crc32() const {
  const auto compute = [this] {
    return static_cast<uint32_t>(
        crc32_z(0, reinterpret_cast<const Bytef*>(bytes().data()), bytes().size()));
  };
  if (counted_ == nullptr) return compute();
  const int64_t known = counted_->crc32.load(std::memory_order_relaxed);
  if (known >= 0) return static_cast<uint32_t>(known);
  const uint32_t computed = compute();
  NoteCrc32(computed);
  return computed;
}

}  // namespace cohort::coordinator
