// Texts for string fields of protos, which have to be UTF-8 and of a bounded size.
#ifndef COHORT_CLIENT_PARALLEL_QUEUE_RING_WIRE_TEXT_H_
#define COHORT_CLIENT_PARALLEL_QUEUE_RING_WIRE_TEXT_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace cohort::parallel {

// For an error, and for the reason why a reader leaves.
inline constexpr size_t kMostReasonBytes = 512;
// For the name of a queue, of its writer, or of a reader.
inline constexpr size_t kMostNameBytes = 256;

// As many whole characters of `text` as fit into `most_bytes`. A byte that is not part of a
// character becomes '?', because a proto with broken UTF-8 cannot be parsed.
std::string WireText(absl::string_view text, size_t most_bytes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_QUEUE_RING_WIRE_TEXT_H_
