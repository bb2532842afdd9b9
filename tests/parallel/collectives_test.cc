// The collectives that return their results, on groups of every form, compared with the results of
// one process.
#include "client/parallel/collectives/collectives.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/async_calls.h"
#include "client/parallel/collectives/by_parallel_mode.h"
#include "client/parallel/collectives/results/result_buffers.h"
#include "client/parallel/messages/pending_call.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/collective_rounds.h"

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
    // The buffer is free once no tensor holds it.
    second = Tensor();
    COHORT_ASSIGN_OR_RETURN(const Tensor again, AllGather(group, input, options));
    EXPECT_EQ(again.data(), data);
    return absl::OkStatus();
  }));
}

TEST_P(CollectivesTest, BesideTheirCaller) {
  MakeGroup(4);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const Tensor input = Upload(group, Tensor::Zeros(DataType::kI32, {4, 2}));
    client::AsyncCalls calls(group);
    const auto sum = Pending<Tensor>::Start(
        calls, [=](client::Group& called) { return AllReduce(called, input); });
    const auto wrong = Pending<Tensor>::Start(
        calls, [=](client::Group& called) { return AllGather(called, input, {.dim = 2}); });
    const auto all = Pending<Tensor>::Start(
        calls, [=](client::Group& called) { return AllGather(called, input, {.dim = 0}); });
    COHORT_ASSIGN_OR_RETURN(const Tensor gathered, all.Wait());
    EXPECT_EQ(gathered.shape(), (Shape{16, 2}));
    EXPECT_TRUE(absl::IsInvalidArgument(wrong.Wait().status()));
    COHORT_ASSIGN_OR_RETURN(const Tensor total, sum.Wait());
    EXPECT_EQ(sum.Wait()->data(), total.data());  // Wait may be called again
    return absl::OkStatus();
  }));
}

TEST_P(CollectivesTest, InTheOrderOfAStream) {
  if (GetParam() != cohort::testing::Form::kDevice) GTEST_SKIP() << "there are streams on GPUs";
  MakeGroup(3);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const client::CallOptions on_stream = {.stream = nullptr};  // the default one
    const Tensor ones = Tensor::Zeros(DataType::kI32, {3, 2});
    std::fill_n(static_cast<int32_t*>(ones.data()), 6, group.rank() + 1);
    const Tensor input = Upload(group, ones);
    COHORT_ASSIGN_OR_RETURN(const Tensor sum, AllReduce(group, input, {.call = on_stream}));
    COHORT_ASSIGN_OR_RETURN(const Tensor all, AllGather(group, sum, {.dim = 0, .call = on_stream}));
    COHORT_ASSIGN_OR_RETURN(const Tensor twice, AllGatherV(group, all, {.call = on_stream}));
    COHORT_ASSIGN_OR_RETURN(const Tensor last,
                            Broadcast(group, input, {.root = 2, .call = on_stream}));
    COHORT_RETURN_IF_ERROR(group.AwaitStreams());
    EXPECT_EQ(twice.shape(), (Shape{27, 2}));
    EXPECT_EQ(static_cast<int32_t*>(Touchable(twice).data())[53], 6);
    EXPECT_EQ(static_cast<int32_t*>(Touchable(last).data())[0], 3);
    // On a stream, only the rank with the wrong argument gets the error, at once.
    EXPECT_TRUE(
        absl::IsInvalidArgument(AllGather(group, input, {.dim = 2, .call = on_stream}).status()));
    return absl::OkStatus();
  }));
}

TEST_P(CollectivesTest, CollectivesRunInTheGroupOfAMode) {
  MakeGroup(2);
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    const GroupOfMode groups = [&](ParallelMode mode) -> absl::StatusOr<client::Group*> {
      if (mode == ParallelMode::kTensor) return &group;
      return absl::FailedPreconditionError("no such group");
    };
    const ParallelMode mode = ParallelMode::kTensor;
    const Tensor input = Upload(group, Tensor::Zeros(DataType::kF32, {4, 2}));
    COHORT_ASSIGN_OR_RETURN(const Tensor all, AllGather(groups, mode, input, {.dim = 1}));
    EXPECT_EQ(all.shape(), (Shape{4, 4}));
    COHORT_ASSIGN_OR_RETURN(const Tensor part, ReduceScatter(groups, mode, input, {.dim = 0}));
    EXPECT_EQ(part.shape(), (Shape{2, 2}));
    COHORT_RETURN_IF_ERROR(AllReduce(groups, mode, input).status());
    COHORT_RETURN_IF_ERROR(Broadcast(groups, mode, input, {.root = 1}).status());
    COHORT_ASSIGN_OR_RETURN(const std::optional<Tensor> sum, Reduce(groups, mode, input));
    EXPECT_EQ(sum.has_value(), group.rank() == 0);
    EXPECT_TRUE(
        absl::IsFailedPrecondition(AllReduce(groups, ParallelMode::kPipeline, input).status()));
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, CollectivesTest, ::testing::ValuesIn(cohort::testing::kForms),
                         FormName);

}  // namespace
}  // namespace cohort::parallel
