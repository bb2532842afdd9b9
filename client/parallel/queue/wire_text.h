// Text for the string fields of messages, which have to be UTF-8 and of a bounded size.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_WIRE_TEXT_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_WIRE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace cohort::parallel {

// Of an error, and of why somebody leaves.
inline constexpr size_t kMostReasonBytes = 512;
// Of the name of a queue, its writer, a reader.
inline constexpr size_t kMostNameBytes = 256;

// As many whole characters of `text` as `most_bytes` have room for. A byte that is not part of one
// becomes '?': a message with broken UTF-8 cannot be parsed.
std::string WireText(absl::string_view text, size_t most_bytes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_WIRE_TEXT_H_
