// The inputs and results of a test's operations. Every rank computes them from the seed, and so
// checks its own results.
#ifndef COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SAMPLE_NUMBERS_H_
#define COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SAMPLE_NUMBERS_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"

namespace cohort::testing {

// Elements repeat after so many; no buffer's size is a multiple of it.
inline constexpr int64_t kSamplePeriod = 29 * 61;

// The operands of one operation; each operation has its own seed.
struct SampleSet {
  uint32_t seed = 0;
  int ranks = 1;
  DataType type = DataType::kU8;
};

// Returns elements `at`, ... of the input of `rank`. Sums and products of up to four ranks are in
// the range of every type, except products of integers, which wrap around.
std::string Sample(const SampleSet& set, int rank, int64_t at, int64_t count);

// Checks that `result` is the reduction of elements `at`, ... of all ranks. Computes it one element
// at a time, in 64-bit integers or in double, without the code of the backends. Floating types may
// be rounded at each step and in any order; any byte but 0 is a true bool. Errors: DATA_LOSS names
// the first wrong element.
absl::Status CheckReduced(const SampleSet& set, const Reduction& reduction, int64_t at,
                          absl::string_view result);
// Checks that `result` is `expected`. Errors: DATA_LOSS, likewise.
absl::Status CheckMoved(DataType type, absl::string_view expected, absl::string_view result);

}  // namespace cohort::testing

#endif  // COHORT_WORKER_GROUP_TESTING_RANK_PROGRAM_SAMPLE_NUMBERS_H_
