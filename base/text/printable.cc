#include "base/text/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"
#include "base/text/utf8.h"

namespace cohort {
namespace {

bool SteersDisplay(uint32_t c) {
  return c < 0x20 || (c >= 0x7f && c < 0xa0) ||        // control characters
         c == 0x061c || c == 0x200e || c == 0x200f ||  // marks of direction
         (c >= 0x2028 && c <= 0x202e) ||               // separators, embeddings, overrides
         (c >= 0x2066 && c <= 0x2069) ||               // isolates
         c == 0x200b || c == 0xfeff;                   // characters without width
}

// How many first bytes of `text` may be shown as they are.
size_t PrintablePrefix(absl::string_view text) {
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte < 0x7f) {
      ++i;
      continue;
    }
    const Utf8Character character = DecodeUtf8(text.substr(i));
    if (character.bytes == 0 || SteersDisplay(character.code_point)) break;
    i += character.bytes;
  }
  return i;
}

}  // namespace

bool IsPrintable(absl::string_view text) { return PrintablePrefix(text) == text.size(); }

std::string Printable(absl::string_view text) {
  std::string result;
  result.reserve(text.size());
  while (true) {
    const size_t prefix = PrintablePrefix(text);
    result.append(text.data(), prefix);
    text.remove_prefix(prefix);
    if (text.empty()) return result;
    const Utf8Character character = DecodeUtf8(text);
    const size_t escaped = character.bytes == 0 ? 1 : character.bytes;
    for (const char c : text.substr(0, escaped)) {
      absl::StrAppendFormat(&result, "\\x%02x", static_cast<unsigned char>(c));
    }
    text.remove_prefix(escaped);
  }
}

void MakePrintable(std::string& text) {
  if (!IsPrintable(text)) text = Printable(text);
}

}  // namespace cohort
