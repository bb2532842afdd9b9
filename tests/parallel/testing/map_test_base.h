// The base of tests of tensor maps.
#ifndef COHORT_TESTS_PARALLEL_TESTING_MAP_TEST_BASE_H_
#define COHORT_TESTS_PARALLEL_TESTING_MAP_TEST_BASE_H_

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <random>
#include <string>

#include "base/tensor/tensor.h"
#include "client/parallel/tensor_map/tensor_map.h"
#include "client/parallel/tensor_map/testing/random_map.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {

class MapTest : public ParallelTest {
 protected:
  static uint32_t Seed() {
    const char* const given = std::getenv("COHORT_TEST_SEED");
    const uint32_t seed = given != nullptr ? static_cast<uint32_t>(std::strtoul(given, nullptr, 10))
                                           : std::random_device()();
    std::cerr << "COHORT_TEST_SEED=" << seed << "\n";
    return seed;
  }

  // Returns a tensor whose bytes depend on their positions.
  static Tensor Pattern(DataType type, const Shape& shape, int salt = 0) {
    Tensor tensor = Tensor::Zeros(type, shape);
    auto* const bytes = static_cast<unsigned char*>(tensor.data());
    const int most = type == DataType::kBool ? 2 : 253;
    for (int64_t i = 0; i < tensor.bytes(); ++i) {
      bytes[i] = static_cast<unsigned char>((i * 7 + i / 251 + salt) % most);
    }
    return tensor;
  }

  // Returns a map with values of any kind, whose tensors are on the host or on this form's devices,
  // in any layout.
  static parallel::TensorMap RandomMap(client::Group& group, std::mt19937& random) {
    return parallel::RandomMap(random, 3, [&] {
      const Tensor host = parallel::RandomHostTensor(random);
      if (random() % 2 == 0) return host;
      const Tensor there = Upload(group, host);
      return there.dims() == 2 ? there.Permute({1, 0}) : there;
    });
  }

  // The same text for equal maps, wherever their tensors are.
  static std::string Text(const parallel::TensorMap& map) {
    return parallel::Describe(map, [](const Tensor& tensor) { return Touchable(tensor); });
  }

  static void ExpectError(const absl::Status& status, absl::StatusCode code,
                          const std::string& said) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(said));
  }
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_PARALLEL_TESTING_MAP_TEST_BASE_H_
