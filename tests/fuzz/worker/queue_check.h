// The bytes that the other end of a message queue may leave in shared memory or send to the
// acceptor: client/parallel/queue.
#ifndef COHORT_TESTS_FUZZ_WORKER_QUEUE_CHECK_H_
#define COHORT_TESTS_FUZZ_WORKER_QUEUE_CHECK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

// An input: which end is the other one, and its actions. See queue_check.cc.
//
// Errors: INTERNAL names the violated rule. Calls end at their deadlines, with an error of the
// queue's contract, whose text can travel. No value is longer than was agreed. A writer only waits
// for readers that are there. The acceptor admits every proper reader, whatever came before. `done`
// (may be null): the number of values read and written.
absl::Status CheckQueue(absl::string_view input, int* done = nullptr);

std::vector<std::string> SampleQueues();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_QUEUE_CHECK_H_
