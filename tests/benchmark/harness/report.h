// Results, as one JSON object per line for programs or as a table for people.
#ifndef COHORT_TESTS_BENCHMARK_HARNESS_REPORT_H_
#define COHORT_TESTS_BENCHMARK_HARNESS_REPORT_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "nlohmann/json.hpp"

namespace cohort::benchmark {

// Keeps the order in which fields were set.
using Row = nlohmann::ordered_json;

struct Summary {
  double median_us = 0;
  double min_us = 0;
  double max_us = 0;
};
// The median of an even number of values is the mean of the middle two. Without values, all are
// zero.
Summary Summarise(std::vector<absl::Duration> latencies);
double Median(std::vector<double> values);

// Rounded to `digits` behind the point, so that lines stay short.
double Rounded(double value, int digits);

// Writes to standard output, each row as it comes.
class Report {
 public:
  explicit Report(bool json) : json_(json) {}

  // Fields of a row of "section":"rendezvous": see RunRendezvous. Any other row is printed as
  // `name: value` pairs.
  void Add(const Row& row);

 private:
  void PrintRendezvous(const Row& row);
  void PrintPairs(const Row& row);

  const bool json_;
  bool header_printed_ = false;
  std::string last_config_;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_HARNESS_REPORT_H_
