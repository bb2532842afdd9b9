// Bytes that another rank may send in place of a message: client/parallel/messages/message_frame.h.
#ifndef COHORT_TESTS_FUZZ_PARALLEL_FRAME_CHECK_H_
#define COHORT_TESTS_FUZZ_PARALLEL_FRAME_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::parallel::fuzz {

// An input: a frame, as one rank gives it to another, and its body behind it. Later bytes are
// ignored.
//
// Errors: INTERNAL names the violated rule. A frame is refused with INVALID_ARGUMENT and a text
// that can travel. Otherwise it encodes to the same bytes, and its body's tensors lie within the
// body, except those that the header announces besides. `accepted` (may be null): whether all of it
// was a message.
absl::Status CheckFrame(absl::string_view input, bool* accepted = nullptr);

std::vector<std::string> SampleFrames();

}  // namespace cohort::parallel::fuzz

#endif  // COHORT_TESTS_FUZZ_PARALLEL_FRAME_CHECK_H_
