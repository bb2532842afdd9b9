#include "client/parallel/queue/ring/wire_text.h"

#include "base/text/utf8.h"

namespace cohort::parallel {

std::string WireText(absl::string_view text, size_t most_bytes) {
  std::string result;
  while (!text.empty()) {
    const size_t bytes = DecodeUtf8(text).bytes;
    const absl::string_view next = bytes > 0 ? text.substr(0, bytes) : absl::string_view("?");
    if (result.size() + next.size() > most_bytes) break;
    result.append(next.data(), next.size());
    text.remove_prefix(bytes > 0 ? bytes : 1);
  }
  return result;
}

}  // namespace cohort::parallel
