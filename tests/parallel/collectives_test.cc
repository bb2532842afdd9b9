// The verbs that return their results, on groups of every form: as one process works them out.
#include "client/parallel/collectives/collectives.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/buffers.h"
#include "gmock/gmock.h"
#include "tests/parallel/collective_rounds.h"

namespace cohort::parallel {
namespace {

using ::cohort::testing::CollectivePlans;
using ::cohort::testing::CollectivesTest;
using ::cohort::testing::FormName;

TEST_P(CollectivesTest, AsWorkedOutInOnePlace) {
  for (int size = 1; size <= kMostRanks; ++size) {
    MakeGroup(size);
    for (int round = 0; round < 30; ++round) {
      const auto seed = static_cast<uint32_t>(1000 * size + round);
      SCOPED_TRACE(absl::StrCat("seed ", seed, ", ", size, " ranks"));
      RunAny(seed);
      if (HasFailure()) return;
    }
  }
}

TEST_P(CollectivesTest, ReducesAndScattersAlongEveryDimension) {
  for (const int size : {2, 4}) {
    MakeGroup(size);
    for (int dim = 0; dim < 4; ++dim) {
      SCOPED_TRACE(absl::StrCat(size, " ranks, dimension ", dim));
      CollectivePlans plans(size, 1);
      Run(plans.ReduceScatter({4, 4, 4, 4}, dim), 1);
      Run(plans.ReduceScatter({4, 8, 12, 16}, dim), 1);
    }
  }
}

TEST_P(CollectivesTest, InPlaceTheResultIsTheInput) {
  MakeGroup(3);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const Tensor ones = Tensor::Zeros(DataType::kI32, {4});
    for (int i = 0; i < 4; ++i) static_cast<int32_t*>(ones.data())[i] = 1 + group.rank();
    const auto first = [](const Tensor& tensor) {
      return static_cast<int32_t*>(Touchable(tensor).data())[0];
    };
    const Tensor tensor = Upload(group, ones);
    COHORT_ASSIGN_OR_RETURN(const Tensor sum, AllReduce(group, tensor, {.in_place = true}));
    EXPECT_EQ(sum.data(), tensor.data());
    EXPECT_EQ(first(tensor), 6);
    const Tensor other = Upload(group, ones);
    COHORT_ASSIGN_OR_RETURN(const Tensor same,
                            Broadcast(group, other, {.root = 2, .in_place = true}));
    EXPECT_EQ(same.data(), other.data());
    EXPECT_EQ(first(other), 3);
    COHORT_ASSIGN_OR_RETURN(const std::optional<Tensor> most,
                            Reduce(group, Upload(group, ones),
                                   {.root = 1, .reduction = {ReduceOp::kMax}, .in_place = true}));
    EXPECT_EQ(most.has_value(), group.rank() == 1);
    EXPECT_TRUE(!most.has_value() || first(*most) == 3);
    return absl::OkStatus();
  }));
}

TEST_P(CollectivesTest, NoResultIsMemoryOfAnother) {
  MakeGroup(2);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const Tensor input = Upload(group, Tensor::Zeros(DataType::kF32, {8, 8}));
    const TensorSpec whole = {DataType::kF32, {16, 8}, input.device()};
    COHORT_ASSIGN_OR_RETURN(const Buffers buffers, Buffers::Prepare(group, {whole, whole}));
    const AllGatherOptions options = {.dim = 0, .buffers = &buffers};
    COHORT_ASSIGN_OR_RETURN(const Tensor first, AllGather(group, input, options));
    COHORT_ASSIGN_OR_RETURN(Tensor second, AllGather(group, input, options));
    EXPECT_EQ(buffers.counts().in_use, 2);
    const void* const data = second.data();
    EXPECT_NE(first.data(), data);
    COHORT_ASSIGN_OR_RETURN(const Tensor third, AllGather(group, input, options));
    EXPECT_EQ(buffers.counts().missed, 1);
    EXPECT_NE(third.data(), data);
    // Once nobody has it.
    second = Tensor();
    COHORT_ASSIGN_OR_RETURN(const Tensor again, AllGather(group, input, options));
    EXPECT_EQ(again.data(), data);
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, CollectivesTest, ::testing::ValuesIn(cohort::testing::kForms),
                         FormName);

}  // namespace
}  // namespace cohort::parallel
