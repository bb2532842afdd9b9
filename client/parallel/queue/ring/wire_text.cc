#include "client/parallel/queue/ring/wire_text.h"

namespace cohort::parallel {
namespace {

// The bytes of the first character; 0: the first byte is not part of a character.
size_t CharacterBytes(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
  };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const size_t bytes = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Overlong forms, surrogates, and numbers beyond the last character.
  const unsigned second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
    return 0;
  }
  return bytes;
}

}  // namespace

std::string WireText(absl::string_view text, size_t most_bytes) {
  std::string result;
  while (!text.empty()) {
    const size_t bytes = CharacterBytes(text);
    const absl::string_view next = bytes > 0 ? text.substr(0, bytes) : absl::string_view("?");
    if (result.size() + next.size() > most_bytes) break;
    result.append(next.data(), next.size());
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return result;
}

}  // namespace cohort::parallel
