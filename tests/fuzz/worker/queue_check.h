// What the other end of a message queue may leave in shared memory or say at the door:
// client/parallel/queue.
#ifndef COHORT_TESTS_FUZZ_WORKER_QUEUE_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_QUEUE_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

// An input: which end is the other's, and what it does. See queue_check.cc.
//
// Errors: INTERNAL says what did not hold: that calls end at their deadlines, in an error of the
// queue's contract, with a text that can travel; that no value is longer than was agreed; that a
// writer only waits for readers that are there; that whoever comes to the door in order is let in,
// whatever came before. `done` (may be null): how many values were read and written.
absl::Status CheckQueue(absl::string_view input, int* done = nullptr);

std::vector<std::string> SampleQueues();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_QUEUE_CHECK_H_
