// Measures one row of the table, and holds it against the bounds.
#ifndef COHORT_TESTS_AMPLIFICATION_MEASURE_H_
#define COHORT_TESTS_AMPLIFICATION_MEASURE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/amplification/subject.h"

namespace cohort::amplification {

inline constexpr int64_t kMiB = int64_t{1} << 20;

struct Cell {
  int64_t sent_bytes = 0;
  // The growth of the daemon's resident memory: at its peak, and after the connections ended.
  int64_t grown_bytes = 0;
  int64_t left_bytes = 0;
  int64_t peak_bytes = 0;  // the daemon's resident memory at its peak
  absl::Duration processor_time;
  absl::Duration longest_innocent_call;  // zero: not measured
};

struct Row {
  std::string protocol;
  Peer peer = Peer::kWithoutRights;
  std::string message;
  std::map<Form, Cell> cells;  // without the forms that the protocol has not
};

// `measures_delay`: also attacks once more beside calls of the innocent client.
std::vector<Row> Measure(const Subject& subject, bool measures_delay);

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_MEASURE_H_
