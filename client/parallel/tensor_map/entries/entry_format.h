// The parts of the format that the writer and the reader of a map's entries share.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRY_FORMAT_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRY_FORMAT_H_

#include <cstdint>
#include <optional>

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
  const std::optional<int64_t> bytes = CountableBytes(type, shape);
  if (bytes.has_value() && ElementCount(shape) == 0) return 0;
  if (bytes.has_value() && *bytes <= kMaxTensorBytes) return *bytes;
  return TooMuch("bytes of tensors", kMaxTensorBytes);
}

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_ENTRIES_ENTRY_FORMAT_H_
