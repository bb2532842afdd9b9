#include "base/port/limits/tenant_rates.h"

#include <gtest/gtest.h>

namespace cohort {
namespace {

constexpr int64_t kLimit = 1000;
constexpr absl::Duration kEach = absl::Milliseconds(1);

class TenantRatesTest : public ::testing::Test {
 protected:
  absl::Duration Call(const char* tenant, int64_t weight = 1) {
    return rates_.OnRequest(tenant, weight, kLimit, now_);
  }

  TenantRates rates_;
  Instant now_ = absl::UnixEpoch() + absl::Hours(1);
};

TEST_F(TenantRatesTest, ATenantAloneNeverWaits) {
  for (int i = 0; i < 100000; ++i) ASSERT_EQ(Call("a"), absl::ZeroDuration());
  // Its earlier requests do not count when another tenant comes.
  Call("b");
  EXPECT_LE(Call("a"), TenantRates::kBurst + 2 * kEach);
}

TEST_F(TenantRatesTest, ATenantOverItsRateWaitsWhileAnotherOneCalls) {
  Call("b");
  EXPECT_EQ(Call("a"), absl::ZeroDuration());
  EXPECT_EQ(Call("a"), absl::ZeroDuration());
  EXPECT_EQ(Call("a"), 3 * kEach);
  EXPECT_EQ(Call("a"), 4 * kEach);
  // The other one does not.
  EXPECT_EQ(Call("b"), absl::ZeroDuration());
  // The wait is over after that time.
  now_ += 3 * kEach;
  EXPECT_EQ(Call("a"), absl::ZeroDuration());
}

TEST_F(TenantRatesTest, InTheLongRunTheRateIsTheLimit) {
  Call("b");
  Call("a");
  const Instant start = now_;
  int calls = 0;
  while (now_ - start < absl::Seconds(20)) {
    now_ += std::max(Call("a"), absl::Microseconds(1));
    ++calls;
    Call("b");
  }
  EXPECT_NEAR(calls, 20 * kLimit, 20 * kLimit / 10);
}

TEST_F(TenantRatesTest, HeavyRequestsCountMore) {
  Call("b");
  EXPECT_EQ(Call("a", 10), 10 * kEach);
  EXPECT_EQ(Call("a", 1 << 30), TenantRates::kLongestPause);
  // That is all that it owes.
  now_ += TenantRates::kLongestPause;
  Call("b");
  EXPECT_EQ(Call("a"), absl::ZeroDuration());
}

TEST_F(TenantRatesTest, CompanyEnds) {
  Call("b");
  for (int i = 0; i < 10; ++i) Call("a");
  EXPECT_GT(Call("a"), absl::ZeroDuration());
  now_ += TenantRates::kCompany + absl::Milliseconds(1);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(Call("a"), absl::ZeroDuration());
}

}  // namespace
}  // namespace cohort
