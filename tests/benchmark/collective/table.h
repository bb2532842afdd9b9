// The results of the collective benchmark, as a table for people or a JSON object per line.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_TABLE_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/benchmark/collective/comparison.h"
#include "tests/benchmark/collective/processes/work.h"
#include "tests/benchmark/harness/report.h"

namespace cohort::benchmark {

// Writes to standard output, the rows of each size as they come.
class Table {
 public:
  Table(bool json, int members) : json_(json), members_(members) {}

  // One row per result:
  // {"section":"collective","operation","members","bytes","implementation","memory","median_us",
  // "min_us","max_us","bus_gb_s","iterations","rounds","best","times_limit"}. "memory" is there if
  // it applies, and "best" (the best variant) if there are several. "times_limit", the median over
  // that of `limit` of the same size, is there if the limit was measured. Results that failed go to
  // standard error.
  void Add(Collective collective, int64_t bytes, const std::vector<Result>& results);

  // The number of failed results.
  int failures() const { return failures_; }

 private:
  Row MakeRow(const Work& work, const Result& result, double limit_us) const;
  void Print(const Row& row);

  const bool json_;
  const int members_;
  int failures_ = 0;
  bool header_printed_ = false;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_TABLE_H_
