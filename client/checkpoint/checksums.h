// A CRC-32 for each tensor of a checkpoint, and one of the whole file.
#ifndef COHORT_CLIENT_CHECKPOINT_CHECKSUMS_H_
#define COHORT_CLIENT_CHECKPOINT_CHECKSUMS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/checkpoint/safetensors.h"

namespace cohort::checkpoint {

// The CRC-32 of zlib.
uint32_t Crc32(absl::string_view bytes);

// Thread-compatible; borrows the layout.
class Checksums {
 public:
  explicit Checksums(const Layout& layout);

  // Adds the next of the tensors' bytes, which come in order.
  void Add(absl::string_view data);

  // After all bytes were added: by tensor, in the layout's order.
  const std::vector<uint32_t>& by_tensor() const { return by_tensor_; }
  // The checksum of the file, as `crc32` and similar tools print it.
  uint32_t OfFile(absl::string_view header) const;

 private:
  const Layout& layout_;
  std::vector<uint32_t> by_tensor_;
  size_t tensor_ = 0;  // the tensor whose bytes come next
  int64_t offset_ = 0;
};

}  // namespace cohort::checkpoint

#endif  // COHORT_CLIENT_CHECKPOINT_CHECKSUMS_H_
