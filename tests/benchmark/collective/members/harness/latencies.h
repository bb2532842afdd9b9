// The times of many calls, in little memory.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_LATENCIES_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_LATENCIES_H_

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cohort::benchmark {

// Counts calls by their time, in 64 steps for each power of two: a quantile is exact to 1 %. Add
// writes one counter and two totals, so that the timed calls keep their caches.
class Latencies {
 public:
  void Add(int64_t nanoseconds) {
    const auto time = static_cast<uint64_t>(std::max<int64_t>(nanoseconds, 0));
    ++counts_[Step(time)];
    ++calls_;
    sum_ += static_cast<double>(time);
  }

  int64_t calls() const { return calls_; }
  // 0 without calls.
  double MeanNs() const { return calls_ == 0 ? 0 : sum_ / static_cast<double>(calls_); }
  // The least time that so large a share of the calls did not exceed; 0.5 is the median.
  double QuantileNs(double share) const {
    const auto wanted = static_cast<int64_t>(share * static_cast<double>(calls_));
    int64_t seen = 0;
    for (size_t step = 0; step < kSteps; ++step) {
      seen += counts_[step];
      if (seen > wanted || (seen == calls_ && seen > 0)) return Middle(step);
    }
    return 0;
  }

 private:
  static constexpr int kFineBits = 6;
  static constexpr size_t kFine = size_t{1} << kFineBits;
  static constexpr size_t kSteps = (64 - kFineBits + 1) * kFine;

  // Below kFine each number is a step of its own; above, the kFineBits bits behind the first one.
  static size_t Step(uint64_t time) {
    if (time < kFine) return static_cast<size_t>(time);
    const int above = 63 - __builtin_clzll(time) - kFineBits;
    return (static_cast<size_t>(above) << kFineBits) + static_cast<size_t>(time >> above);
  }
  static double Middle(size_t step) {
    if (step < 2 * kFine) return static_cast<double>(step);
    const size_t above = (step >> kFineBits) - 1;
    const auto first = static_cast<double>(step - (above << kFineBits));
    return (first + 0.5) * static_cast<double>(uint64_t{1} << above);
  }

  std::vector<int64_t> counts_ = std::vector<int64_t>(kSteps);
  int64_t calls_ = 0;
  double sum_ = 0;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_LATENCIES_H_
