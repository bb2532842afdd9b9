// Any bytes on a lane, to a whole coordinator behind a real socket.
#ifndef COHORT_TESTS_FUZZ_LANE_CHECK_H_
#define COHORT_TESTS_FUZZ_LANE_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tests/fuzz/lane_script.h"

namespace cohort::coordinator::fuzz {

struct LaneCounts {
  int64_t answered = 0;
  int64_t refused = 0;
  int64_t closed = 0;  // by the server, for what is no frame
};

// Writes the script, and reads what comes until the last call is answered or the server closes.
//
// Errors: INTERNAL names what did not hold. The server greets; whatever it sends is a whole frame;
// it answers no call that was not made, and none twice; it closes where a frame is broken and only
// there; the last call is answered within ten seconds; and nothing of a client that is gone stays
// behind.
absl::Status CheckLane(const LaneScript& script, LaneCounts* counts = nullptr);

}  // namespace cohort::coordinator::fuzz

#endif  // COHORT_TESTS_FUZZ_LANE_CHECK_H_
