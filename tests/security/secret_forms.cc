#include "tests/security/secret_forms.h"

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cohort::testing {
namespace {

// Base64 of a secret in the middle of other bytes: the characters that depend on the secret alone.
bool HasBase64(absl::string_view output, absl::string_view secret) {
  for (size_t before = 0; before < 3; ++before) {
    const std::string text =
        absl::Base64Escape(absl::StrCat(std::string(before, '\0'), secret.substr(0, 12)));
    // Other bytes share the first characters, and the last ones.
    const absl::string_view own = absl::string_view(text).substr(before == 0 ? 0 : 4, 10);
    std::string url_safe(own);
    for (char& byte : url_safe) byte = byte == '+' ? '-' : byte == '/' ? '_' : byte;
    if (absl::StrContains(output, own) || absl::StrContains(output, url_safe)) return true;
  }
  return false;
}

}  // namespace

std::string FormIn(absl::string_view output, absl::string_view secret) {
  const std::string lower = absl::AsciiStrToLower(output);
  const absl::string_view halves[] = {secret.substr(0, secret.size() / 2),
                                      secret.substr(secret.size() / 2)};
  for (const absl::string_view half : halves) {
    if (absl::StrContains(output, half)) return "as it is";
    if (absl::StrContains(lower, absl::BytesToHexString(half))) return "in hex";
    std::string reversed(half.rbegin(), half.rend());  // a number of a little-endian machine
    if (absl::StrContains(lower, absl::BytesToHexString(reversed))) return "in hex";
  }
  if (HasBase64(output, secret)) return "in base64";
  if (absl::StrContains(output, absl::CEscape(secret)) ||
      absl::StrContains(output, absl::CHexEscape(secret))) {
    return "escaped";
  }
  return "";
}

}  // namespace cohort::testing
