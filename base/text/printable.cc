#include "base/text/printable.h"

#include <cstddef>
#include <cstdint>

#include "absl/strings/str_format.h"

namespace cohort {
namespace {

struct Character {
  uint32_t code_point = 0;
  size_t bytes = 0;  // 0: the bytes are no UTF-8
};

// Decodes the character at the front of `text`, which is not empty.
Character Decode(absl::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xc2 && lead < 0xe0   ? 2
                       : lead >= 0xe0 && lead < 0xf0 ? 3
                       : lead >= 0xf0 && lead < 0xf5 ? 4
                                                     : 0;
  if (bytes == 0 || text.size() < bytes) return {};
  uint32_t code_point = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code_point = code_point << 6 | (byte(i) & 0x3fu);
  }
  // Overlong forms, surrogates, and numbers above U+10FFFF.
  if ((bytes == 3 && code_point < 0x800) || (bytes == 4 && code_point < 0x10000)) return {};
  if ((code_point >= 0xd800 && code_point < 0xe000) || code_point > 0x10ffff) return {};
  return {code_point, bytes};
}

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
    const Character character = Decode(text.substr(i));
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
    const Character character = Decode(text);
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
