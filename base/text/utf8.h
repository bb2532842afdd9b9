// Characters of UTF-8, and texts that end between two of them.
#ifndef COHORT_BASE_TEXT_UTF8_H_
#define COHORT_BASE_TEXT_UTF8_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"

namespace cohort {

struct Utf8Character {
  uint32_t code_point = 0;
  size_t bytes = 0;  // 0: the bytes are no UTF-8
};
// Decodes the character at the front of `text`, which is not empty.
Utf8Character DecodeUtf8(absl::string_view text);

// The beginning of `text`, at most `max_bytes` long; does not cut a character.
absl::string_view CutUtf8(absl::string_view text, size_t max_bytes);

}  // namespace cohort

#endif  // COHORT_BASE_TEXT_UTF8_H_
