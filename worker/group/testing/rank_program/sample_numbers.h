// What ranks bring to each operation of a test, and what comes of it: every rank knows it all from
// the seed, so it checks its own results.
#ifndef COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SAMPLE_NUMBERS_H_
#define COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SAMPLE_NUMBERS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/data_type.h"
#include "base/reduction.h"

namespace cohort::testing {

// Elements repeat themselves after so many, which fit into no buffer evenly.
inline constexpr int64_t kSamplePeriod = 29 * 61;

// Of whose operands: each operation has its own.
struct SampleSet {
  uint32_t seed = 0;
  int ranks = 1;
  DataType type = DataType::kU8;
};

// Elements `at`, ... of what `rank` brings. Such that sums and products of up to four ranks are in
// the range of every type, but for products of integers, which wrap.
std::string Sample(const SampleSet& set, int rank, int64_t at, int64_t count);

// Whether `result` is the reduction of elements `at`, ... of all ranks: computed one element at a
// time, in integers of 64 bits or in double, by nothing that the backends use. Floating types may
// be rounded at each step and in any order; a bool that is true is any byte but 0. Errors:
// DATA_LOSS names the first element that is wrong.
absl::Status CheckReduced(const SampleSet& set, const Reduction& reduction, int64_t at,
                          absl::string_view result);
// Whether it is what was to be moved. Errors: DATA_LOSS, likewise.
absl::Status CheckMoved(DataType type, absl::string_view expected, absl::string_view result);

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SAMPLE_NUMBERS_H_
