// Every form of a group, as tests of the layers above groups get it.
#include <vector>

#include "base/testing/random_tensor.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

class FixtureTest : public ParallelTest {};

TEST_P(FixtureTest, AddsUp) {
  for (const int size : {1, 2, 8}) {
    MakeGroup(size);
    ExpectOk(OnRanks([&](client::Group& group) {
      const Tensor own = Tensor::Zeros(DataType::kI32, {3});
      for (int i = 0; i < 3; ++i) static_cast<int32_t*>(own.data())[i] = group.rank() + i;
      const Tensor input = Upload(group, own);
      const Tensor output = Upload(group, Tensor::Zeros(DataType::kI32, {3}));
      const absl::Status status = group.AllReduce(input, output, {ReduceOp::kSum});
      const Tensor sum = Download(group, output);
      EXPECT_EQ(static_cast<int32_t*>(sum.data())[2], size * (size - 1) / 2 + 2 * size);
      EXPECT_EQ(ElementsOf(Download(group, input)), ElementsOf(own));
      return status;
    }));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, FixtureTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
