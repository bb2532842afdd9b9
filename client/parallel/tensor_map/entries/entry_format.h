// The parts of the format that the writer and the reader of a map's entries share.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRY_FORMAT_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRY_FORMAT_H_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/tensor/tensor.h"
#include "client/parallel/tensor_map/entries/entries.h"

namespace cohort::parallel {

inline constexpr int kEntriesVersion = 1;

inline absl::Status TooMuch(absl::string_view what, int64_t most) {
  return absl::ResourceExhaustedError(
      absl::StrCat("a map of more than ", most, " ", what, ", the most that travel"));
}

// The bytes of a tensor with an untrusted shape. Errors: RESOURCE_EXHAUSTED.
inline absl::StatusOr<int64_t> CheckedBytes(DataType type, const Shape& shape) {
  int64_t bytes = SizeOf(type);
  bool empty = false;
  for (const int64_t extent : shape) {
    empty = empty || extent == 0;
    // An empty tensor counts like one with 1 in place of 0: code that skips the 0 must not
    // overflow.
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes)) {
      return TooMuch("bytes of tensors", kMaxTensorBytes);
    }
  }
  if (empty) return 0;
  if (bytes <= kMaxTensorBytes) return bytes;
  return TooMuch("bytes of tensors", kMaxTensorBytes);
}

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRY_FORMAT_H_
