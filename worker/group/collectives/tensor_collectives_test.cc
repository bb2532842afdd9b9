// The results of collectives on each rank, compared with a model that computes them from all
// inputs, for random shapes, layouts, types and sizes.
#include "worker/group/collectives/tensor_collectives.h"

#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "gtest/gtest.h"
#include "worker/group/testing/collective_world.h"
#include "worker/group/testing/random_collective.h"
#include "worker/group/testing/tensor_model.h"
#include "worker/group/testing/typed_collectives.h"

namespace cohort::worker {
namespace {

using Random = std::mt19937;

class TensorCollectivesTest : public ::testing::TestWithParam<Medium> {};

TEST_P(TensorCollectivesTest, EveryCollectiveMatchesTheModel) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Random random(seed);
  for (const int size : {1, 2, 3, 4, 8}) {
    CollectiveWorld world(GetParam(), size);
    for (int round = 0; round < (size == 8 ? 100 : 250); ++round) {
      SCOPED_TRACE(absl::StrCat(size, " ranks, round ", round));
      RunRandomCollective(world, random);
      if (HasFailure()) return;
    }
  }
}

// Other libraries make this mistake: with equal extents, parts have the right shape but wrong
// numbers, unless the dimension is one of the first two.
TEST_P(TensorCollectivesTest, ReduceScatterAlongEveryDimensionOfACube) {
  CollectiveWorld world(GetParam(), 2);
  Random random(1);
  const Shape cube = {4, 4, 4, 4};
  const std::vector<TensorModel> inputs = {RandomModel(DataType::kI32, cube, random),
                                           RandomModel(DataType::kI32, cube, random)};
  const TensorModel sum = Reduced(inputs, {ReduceOp::kSum});
  for (int dim = 0; dim < 4; ++dim) {
    ExpectOk(world.Run([&](TensorCollectives& collectives) {
      const auto rank = static_cast<size_t>(collectives.rank());
      const Tensor input = Tensor::Zeros(DataType::kI32, cube);
      SetElements(input, inputs[rank].bytes);
      const Tensor output = Tensor::Zeros(DataType::kI32, With(cube, dim, 2));
      const absl::Status status =
          ReduceScatter(collectives, input, output, dim, {ReduceOp::kSum}, Soon());
      EXPECT_EQ(ElementsOf(output), Slice(sum, dim, 2 * collectives.rank(), 2).bytes) << dim;
      return status;
    }),
             "reduce_scatter");
  }
}

TEST_P(TensorCollectivesTest, SizesOfAllRanks) {
  CollectiveWorld world(GetParam(), 3);
  ExpectOk(world.Run([](TensorCollectives& collectives) {
    const absl::StatusOr<client::Sizes> sizes =
        ExchangeSizes(collectives, 10 * collectives.rank(), Soon());
    EXPECT_EQ(sizes.value_or(client::Sizes{}), (client::Sizes{0, 10, 20}));
    return sizes.status();
  }),
           "exchange_sizes");
}

// Several messages at once around a ring in both directions, in any layout.
TEST_P(TensorCollectivesTest, ExchangeOfAnyLayout) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  Random random(seed);
  for (const int size : {2, 3, 4}) {
    CollectiveWorld world(GetParam(), size);
    for (int round = 0; round < 60; ++round) {
      const DataType type = kDataTypes[random() % kDataTypes.size()];
      const Shape shape = RandomShape(random, 0);
      const auto ranks = static_cast<size_t>(size);
      std::vector<std::vector<RandomTensor>> sent(ranks);
      std::vector<std::vector<RandomTensor>> received(ranks);
      for (size_t rank = 0; rank < ranks; ++rank) {
        for (int i = 0; i < 2; ++i) {
          sent[rank].emplace_back(type, shape, random);
          SetElements(sent[rank].back().tensor(), RandomModel(type, shape, random).bytes);
          received[rank].emplace_back(type, shape, random);
        }
      }
      ExpectOk(world.Run([&](TensorCollectives& collectives) {
        const int next = (collectives.rank() + 1) % size;
        const int previous = (collectives.rank() + size - 1) % size;
        const auto rank = static_cast<size_t>(collectives.rank());
        return collectives.Exchange({{true, next, sent[rank][0].tensor()},
                                     {true, previous, sent[rank][1].tensor()},
                                     {false, next, received[rank][0].tensor()},
                                     {false, previous, received[rank][1].tensor()}},
                                    Soon());
      }),
               "exchange");
      for (size_t rank = 0; rank < ranks; ++rank) {
        const size_t next = (rank + 1) % ranks;
        const size_t previous = (rank + ranks - 1) % ranks;
        // With two ranks, both messages come from the same rank, in the order sent.
        const int from_next = ranks == 2 ? 0 : 1;
        const int from_previous = ranks == 2 ? 1 : 0;
        ASSERT_TRUE(ElementsOf(received[rank][0].tensor()) ==
                    ElementsOf(sent[next][static_cast<size_t>(from_next)].tensor()));
        ASSERT_TRUE(ElementsOf(received[rank][1].tensor()) ==
                    ElementsOf(sent[previous][static_cast<size_t>(from_previous)].tensor()));
        ASSERT_FALSE(received[rank][0].Strayed());
        ASSERT_FALSE(received[rank][1].Strayed());
      }
    }
  }
}

TEST_P(TensorCollectivesTest, AMessageThatDiffersFromItsTensorCostsNoOtherMessage) {
  for (const bool first_differs : {true, false}) {
    CollectiveWorld world(GetParam(), 2);
    const Tensor sent = world.Allocate(DataType::kF32, {4});
    for (int i = 0; i < 4; ++i) static_cast<float*>(sent.data())[i] = static_cast<float>(i + 1);
    const Tensor shorter = world.Allocate(DataType::kF32, {3});
    // Columns, so that the messages come to contiguous memory first.
    const Tensor fits = *world.Allocate(DataType::kF32, {4, 2}).Narrow(1, 0, 1);
    const Tensor differs = *world.Allocate(DataType::kF32, {4, 2}).Narrow(1, 1, 1);
    const std::vector<absl::Status> statuses = world.Run([&](TensorCollectives& collectives) {
      const bool sends = collectives.rank() == 0;
      const int peer = 1 - collectives.rank();
      const client::TensorTransfer right = {sends, peer, sends ? sent : fits};
      const client::TensorTransfer wrong = {sends, peer, sends ? shorter : differs};
      return first_differs ? collectives.Exchange({wrong, right}, Soon())
                           : collectives.Exchange({right, wrong}, Soon());
    });
    EXPECT_TRUE(absl::IsInvalidArgument(statuses[1])) << statuses[1];
    EXPECT_EQ(ElementsOf(fits), ElementsOf(sent)) << first_differs;
  }
}

INSTANTIATE_TEST_SUITE_P(Media, TensorCollectivesTest,
                         ::testing::Values(Medium::kHeap, Medium::kMixed, Medium::kProcess,
                                           Medium::kSocket),
                         [](const auto& info) { return NameOf(info.param); });

}  // namespace
}  // namespace cohort::worker
