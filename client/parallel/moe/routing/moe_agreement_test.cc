#include "client/parallel/moe/routing/moe_agreement.h"

#include <initializer_list>

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

}  // namespace
}  // namespace cohort::parallel
