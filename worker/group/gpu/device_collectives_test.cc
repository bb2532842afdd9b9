// Collectives on tensors of GPUs, with the same model as those on the host. They run over the fake
// NCCL and the fake CUDA runtime, which reports every access outside of its memory.
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/group/testing/device_world.h"
#include "worker/group/testing/random_collective.h"
#include "worker/group/testing/tensor_model.h"
#include "worker/group/testing/typed_collectives.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr Reduction kSum = {ReduceOp::kSum};

class DeviceCollectivesTest : public ::testing::TestWithParam<DeviceWorld::Calls> {};

TEST_P(DeviceCollectivesTest, EveryCollectiveMatchesTheModel) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  for (const int size : {1, 2, 3}) {
    DeviceWorld world(size, GetParam());
    for (int round = 0; round < 120; ++round) {
      SCOPED_TRACE(absl::StrCat(size, " ranks, round ", round));
      RunRandomCollective(world, random);
      if (HasFailure()) return;
    }
  }
}

TEST_P(DeviceCollectivesTest, ExchangeOfAnyLayout) {
  std::mt19937 random(7);
  DeviceWorld world(3, GetParam());
  for (int round = 0; round < 20; ++round) {
    const Shape shape = RandomShape(random, 0);
    std::vector<RandomTensor> sent;
    std::vector<RandomTensor> received;
    const auto allocate = [&](DataType type, const Shape& s) { return world.Allocate(type, s); };
    for (int rank = 0; rank < world.size(); ++rank) {
      sent.emplace_back(DataType::kF32, shape, random, allocate);
      SetElements(sent.back().tensor(), RandomModel(DataType::kF32, shape, random).bytes);
      received.emplace_back(DataType::kF32, shape, random, allocate);
    }
    ExpectOk(world.Run([&](TensorCollectives& collectives) {
      const int rank = collectives.rank();
      const auto at = static_cast<size_t>(rank);
      return collectives.Exchange(
          {{true, (rank + 1) % 3, world.Seen(rank, sent[at].tensor())},
           {false, (rank + 2) % 3, world.Seen(rank, received[at].tensor())}},
          Soon());
    }),
             "exchange");
    for (size_t rank = 0; rank < 3; ++rank) {
      ASSERT_TRUE(ElementsOf(received[rank].tensor()) == ElementsOf(sent[(rank + 2) % 3].tensor()));
      ASSERT_FALSE(received[rank].Strayed());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Calls, DeviceCollectivesTest,
                         ::testing::Values(DeviceWorld::Calls::kBlock,
                                           DeviceWorld::Calls::kOnStreams),
                         [](const auto& info) {
                           return info.param == DeviceWorld::Calls::kBlock ? "Block" : "OnStreams";
                         });

class DeviceErrorsTest : public ::testing::Test {
 protected:
  Tensor On(int rank, const Shape& shape) {
    return world_.Seen(rank, world_.Allocate(DataType::kF32, shape));
  }
  void ExpectUsable() {
    ExpectOk(world_.Run([&](TensorCollectives& collectives) {
      const Tensor tensor = On(collectives.rank(), {4});
      return AllReduce(collectives, tensor, tensor, kSum, Soon());
    }),
             "afterwards");
  }

  DeviceWorld world_{3};
};

TEST_F(DeviceErrorsTest, DifferentShapesFailOnAllRanks) {
  const std::vector<absl::Status> statuses = world_.Run([&](TensorCollectives& collectives) {
    const Shape shape = collectives.rank() == 2 ? Shape{4, 3} : Shape{3, 4};
    const Tensor tensor = On(collectives.rank(), shape);
    return AllReduce(collectives, tensor, tensor, kSum, Soon());
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("f32 [3, 4] on GPUs"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("f32 [4, 3] on GPUs"));
  }
  ExpectUsable();
}

// One rank's tensor lies on the host: host and device meet in the same barrier, so the mismatch is
// found.
TEST_F(DeviceErrorsTest, LocationsThatDifferAreReportedToAll) {
  std::vector<std::unique_ptr<TensorCollectives>> on_host;
  HostLocation location([](DataType type, const Shape& shape) -> absl::StatusOr<Tensor> {
    return Tensor::Uninitialized(type, shape);
  });
  for (int rank = 0; rank < world_.size(); ++rank) {
    on_host.push_back(std::make_unique<TensorCollectives>(&world_.host(rank), &location));
  }
  for (const int64_t count : {4, 100000}) {
    const std::vector<absl::Status> statuses = world_.Run([&](TensorCollectives& collectives) {
      if (collectives.rank() == 1) {
        const Tensor tensor = Tensor::Zeros(DataType::kF32, {count});
        return AllReduce(*on_host[1], tensor, tensor, kSum, Soon());
      }
      const Tensor tensor = On(collectives.rank(), {count});
      return AllReduce(collectives, tensor, tensor, kSum, Soon());
    });
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("f32 [", count, "] on GPUs by sum")));
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr(absl::StrCat("f32 [", count, "] by sum")));
    }
    ExpectUsable();
  }
}

TEST_F(DeviceErrorsTest, TensorsOfAnotherDeviceAreRefused) {
  TensorCollectives& collectives = world_.rank(0);
  const Tensor own = On(0, {4});
  const auto refuse = [](const absl::Status& status, const std::string& why) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(why));
  };
  refuse(AllReduce(collectives, own, On(1, {4}), kSum, Soon()),
         "the output is f32 [4] on cuda:1 and should be on cuda:0");
  refuse(AllReduce(collectives, Tensor::Zeros(DataType::kF32, {4}), own, kSum, Soon()),
         "the input is f32 [4] and should be on cuda:0");
  refuse(collectives.Exchange({{true, 1, Tensor::Zeros(DataType::kF32, {4})}}, Soon()),
         "the tensor is on host and should be on cuda:0");
  ExpectUsable();
}

}  // namespace
}  // namespace cohort::worker
