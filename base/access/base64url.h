// Base64 with the letters of URLs and without padding (RFC 7515).
#ifndef COHORT_BASE_ACCESS_BASE64URL_H_
#define COHORT_BASE_ACCESS_BASE64URL_H_

#include <optional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/string_view.h"

namespace cohort {

inline std::string EncodeBase64Url(absl::string_view bytes) {
  return absl::WebSafeBase64Escape(bytes);
}

// Nothing: `text` is not the one text that EncodeBase64Url makes of some bytes. Abseil alone would
// also take white space, padding and unused bits that are set.
inline std::optional<std::string> DecodeBase64Url(absl::string_view text) {
  std::string bytes;
  if (!absl::WebSafeBase64Unescape(text, &bytes) || EncodeBase64Url(bytes) != text) {
    return std::nullopt;
  }
  return bytes;
}

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_BASE64URL_H_
