#include "base/port/limits/handshake_debt.h"

#include "gtest/gtest.h"

namespace cohort {
namespace {

const Instant kStart = absl::UnixEpoch();

TEST(HandshakeDebtTest, ABurstIsAllowed) {
  HandshakeDebt debt({0.25, absl::Seconds(1)});
  EXPECT_FALSE(debt.TooHigh(kStart));
  for (int i = 0; i < 4; ++i) debt.Add(absl::Milliseconds(250), kStart);
  EXPECT_EQ(debt.At(kStart), absl::Seconds(1));
  EXPECT_FALSE(debt.TooHigh(kStart));
  debt.Add(absl::Milliseconds(1), kStart);
  EXPECT_TRUE(debt.TooHigh(kStart));
}

TEST(HandshakeDebtTest, ShrinksByItsShareOfTheTime) {
  HandshakeDebt debt({0.25, absl::Seconds(1)});
  debt.Add(absl::Seconds(2), kStart);
  EXPECT_EQ(debt.At(kStart + absl::Seconds(2)), absl::Milliseconds(1500));
  EXPECT_TRUE(debt.TooHigh(kStart + absl::Seconds(3)));
  EXPECT_FALSE(debt.TooHigh(kStart + absl::Seconds(4)));
  EXPECT_EQ(debt.paid_at(), kStart + absl::Seconds(8));
  EXPECT_EQ(debt.At(kStart + absl::Seconds(9)), absl::ZeroDuration());
}

TEST(HandshakeDebtTest, StaysAtTwiceTheBurst) {
  HandshakeDebt debt({0.25, absl::Seconds(1)});
  debt.Add(absl::Hours(1), kStart);
  EXPECT_EQ(debt.At(kStart), absl::Seconds(2));
  EXPECT_FALSE(debt.TooHigh(kStart + absl::Seconds(4)));
}

// A long time without failures gives no credit.
TEST(HandshakeDebtTest, StartsAgainAfterItIsPaid) {
  HandshakeDebt debt({0.25, absl::Seconds(1)});
  debt.Add(absl::Seconds(1), kStart);
  const Instant later = kStart + absl::Hours(1);
  debt.Add(absl::Seconds(2), later);
  EXPECT_EQ(debt.At(later), absl::Seconds(2));
}

TEST(HandshakeDebtTest, MayBeUnlimited) {
  HandshakeDebt debt({0.25, absl::InfiniteDuration()});
  debt.Add(absl::Hours(1), kStart);
  EXPECT_FALSE(debt.TooHigh(kStart));
}

}  // namespace
}  // namespace cohort
