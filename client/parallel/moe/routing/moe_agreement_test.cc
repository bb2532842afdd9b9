#include "client/parallel/moe/routing/moe_agreement.h"

#include <initializer_list>

#include "base/clock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

uint64_t FingerprintOf(std::initializer_list<Shape> shapes) {
  Fingerprint fingerprint;
  for (const Shape& shape : shapes) {
    AddRows(Tensor(nullptr, DataType::kF32, shape), fingerprint);
  }
  return fingerprint.value();
}

TEST(AgreementTest, ShapesThatDifferHaveOtherFingerprints) {
  // An extent may be any number, also that of a type: the number of dimensions tells them apart.
  for (int64_t extent = 0; extent < 1024; ++extent) {
    EXPECT_NE(FingerprintOf({{1, 2}, {1, 4}}), FingerprintOf({{1, 2, extent, 4}}))
        << "two tensors, and one whose third extent is " << extent;
  }
  EXPECT_NE(FingerprintOf({{1, 2, 3}}), FingerprintOf({{1, 3, 2}}));
  EXPECT_EQ(FingerprintOf({{1, 2, 3}}), FingerprintOf({{5, 2, 3}})) << "rows may differ";
}

TEST(TimeLeftTest, CoversTheWholeCall) {
  constexpr absl::Duration kTimeout = absl::Seconds(60);
  client::CallOptions options;
  options.timeout = kTimeout;
  const TimeLeft time(options);
  const Instant begin = Clock::Steady().Now();
  while (Clock::Steady().Now() == begin) {
  }
  const absl::Duration left = *time.Options().timeout;
  EXPECT_LT(left, kTimeout);
  EXPECT_GT(left, absl::ZeroDuration());

  options.timeout = absl::ZeroDuration();
  EXPECT_EQ(TimeLeft(options).Options().timeout, absl::ZeroDuration());
  options.timeout.reset();
  EXPECT_FALSE(TimeLeft(options).Options().timeout.has_value());
}

}  // namespace
}  // namespace cohort::parallel
