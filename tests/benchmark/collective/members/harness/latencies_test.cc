#include "tests/benchmark/collective/members/harness/latencies.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace cohort::benchmark {
namespace {

TEST(LatenciesTest, QuantilesAreThoseOfAllCallsToOnePercent) {
  std::mt19937_64 random(20261122);
  for (const double spread : {0.01, 1.0, 3.0}) {
    std::lognormal_distribution<double> times(7, spread);  // around 1100 ns
    Latencies latencies;
    std::vector<int64_t> all;
    double sum = 0;
    for (int i = 0; i < 20000; ++i) {
      all.push_back(static_cast<int64_t>(times(random)));
      sum += static_cast<double>(all.back());
      latencies.Add(all.back());
    }
    std::sort(all.begin(), all.end());
    EXPECT_EQ(latencies.calls(), 20000);
    EXPECT_NEAR(latencies.MeanNs(), sum / 20000, 1e-6 * sum);
    for (const double share : {0.0, 0.5, 0.99, 0.999}) {
      const auto exact = static_cast<double>(all[static_cast<size_t>(share * 20000)]);
      EXPECT_NEAR(latencies.QuantileNs(share), exact, 0.01 * exact + 0.5) << share;
    }
  }
}

TEST(LatenciesTest, ExtremesAreCounted) {
  Latencies latencies;
  EXPECT_EQ(latencies.QuantileNs(0.5), 0);
  EXPECT_EQ(latencies.MeanNs(), 0);
  latencies.Add(-5);
  latencies.Add(0);
  latencies.Add(int64_t{1} << 62);
  EXPECT_EQ(latencies.calls(), 3);
  EXPECT_EQ(latencies.QuantileNs(0.5), 0);
  EXPECT_NEAR(latencies.QuantileNs(1), 0x1p62, 0x1p56);
}

}  // namespace
}  // namespace cohort::benchmark
