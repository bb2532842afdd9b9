// Any bytes, as the value of any kind of row. A row that decodes must encode, and decode to the
// same row again.
//
//   bazel run --config=fuzz //coordinator/journal:record_codec_fuzz -- -max_total_time=60
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "absl/strings/string_view.h"
#include "coordinator/journal/record_codec.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace cohort::coordinator;  // NOLINT: the entry point must be outside
  const absl::string_view bytes(reinterpret_cast<const char*>(data), size);
  for (int number = 1; number <= 9; ++number) {
    const auto kind = static_cast<RecordKind>(number);
    const absl::StatusOr<RecordValue> value = DecodeRecord(kind, bytes);
    if (!value.ok()) continue;
    const std::string encoded = EncodeRecord(*value);
    const absl::StatusOr<RecordValue> again = DecodeRecord(kind, encoded);
    if (!again.ok() || EncodeRecord(*again) != encoded) std::abort();
  }
  return 0;
}
