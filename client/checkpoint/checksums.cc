#include "client/checkpoint/checksums.h"

#include <zlib.h>

#include <algorithm>

namespace cohort::checkpoint {
namespace {

uint32_t Extend(uint32_t crc, absl::string_view bytes) {
  return static_cast<uint32_t>(
      crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

uint32_t Crc32(absl::string_view bytes) { return Extend(0, bytes); }

Checksums::Checksums(const Layout& layout)
    : layout_(layout), by_tensor_(layout.tensors.size(), 0) {}

void Checksums::Add(absl::string_view data) {
  while (!data.empty() && tensor_ < by_tensor_.size()) {
    const int64_t left = layout_.tensors[tensor_].end - offset_;
    const auto length = std::min(static_cast<size_t>(left), data.size());
    by_tensor_[tensor_] = Extend(by_tensor_[tensor_], data.substr(0, length));
    data.remove_prefix(length);
    offset_ += static_cast<int64_t>(length);
    if (offset_ == layout_.tensors[tensor_].end) ++tensor_;
  }
}

uint32_t Checksums::OfFile(absl::string_view header) const {
  uLong crc = Crc32(header);
  for (size_t i = 0; i < by_tensor_.size(); ++i) {
    crc = crc32_combine(crc, by_tensor_[i], static_cast<z_off_t>(layout_.tensors[i].bytes()));
  }
  return static_cast<uint32_t>(crc);
}

}  // namespace cohort::checkpoint
