// The measurements of `cohort perf` on GPUs, over the fake NCCL and the fake CUDA runtime. Each
// rank has a thread of its own.
#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "client/perf/cases.h"
#include "client/perf/measure.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/group/gpu/cuda_gpu_context.h"
#include "worker/group/local_group.h"

namespace cohort::worker {
namespace {

constexpr int kRanks = 2;

using Rows = std::vector<absl::StatusOr<perf::Row>>;

class DevicePerfTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda::FakeMachine machine;
    machine.devices = kRanks;
    cuda::ResetFakeRuntime(machine);
    nccl_ = std::make_shared<FakeNcclApi>();
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  // Runs all cases on all ranks; returns rows by rank. `spoils` makes copies from the GPU return
  // wrong bytes.
  std::vector<Rows> Measure(const std::vector<perf::Case>& cases, bool spoils = false) {
    std::vector<Rows> rows(kRanks);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < kRanks; ++rank) {
      threads.emplace_back([&, rank] {
        auto gpu = std::make_shared<CudaGpuContext>(nccl_, rank);
        LocalGroupOptions options;
        options.membership.connection.address = coordinator_.address();
        options.membership.group = "perf";
        options.membership.rank = rank;
        options.membership.world_size = kRanks;
        options.bootstrap.placement = Placement::kBoth;
        options.gpu_context = gpu;
        const auto group = LocalGroup::Create(std::move(options));
        ASSERT_TRUE(group.ok()) << group.status();
        perf::MeasureOptions measure;
        measure.iterations = 3;
        measure.warmup = 1;
        measure.copy = [&, rank](const Tensor& from, const Tensor& to) {
          EXPECT_NE(from.device(), to.device());
          EXPECT_EQ((from.device().is_host() ? to : from).device(), Device::Cuda(rank));
          ++copies_;
          const absl::Status status = gpu->Copy({{from, to}}, std::nullopt, absl::Minutes(1));
          if (spoils && to.device().is_host()) ++*static_cast<char*>(to.data());
          return status;
        };
        for (const perf::Case& run : cases) {
          rows[static_cast<size_t>(rank)].push_back(
              perf::Measure(**group, run, measure, Clock::Steady()));
        }
        const absl::Status ran = (*group)->Barrier({});
        EXPECT_TRUE(ran.ok()) << ran;
      });
    }
    for (std::thread& thread : threads) thread.join();
    return rows;
  }

  cohort::testing::CoordinatorProcess coordinator_{{}};
  std::shared_ptr<FakeNcclApi> nccl_;
  std::atomic<int> copies_{0};
};

TEST_F(DevicePerfTest, AllOperationsAreRightBothWays) {
  std::vector<perf::Case> cases;
  for (const Collective operation : perf::kOperations) {
    for (const int64_t bytes : {8, 4096}) {
      cases.push_back(
          perf::MakeCase(operation, bytes, DataType::kF32, {ReduceOp::kSum}, 1, kRanks));
    }
  }
  for (const Rows& rows : Measure(cases)) {
    ASSERT_EQ(rows.size(), cases.size());
    for (const absl::StatusOr<perf::Row>& row : rows) {
      ASSERT_TRUE(row.ok()) << row.status();
      EXPECT_EQ(row->in_place.has_value(), perf::RunsInPlace(row->run.operation));
      for (const auto& figures : {row->out_of_place, row->in_place}) {
        if (!figures.has_value()) continue;
        EXPECT_EQ(figures->wrong, 0) << perf::OperationName(row->run.operation);
        EXPECT_EQ(figures->iterations, 3);
        EXPECT_GT(figures->median_us, 0);
      }
    }
  }
  EXPECT_GT(copies_, 0);
}

TEST_F(DevicePerfTest, WrongElementsOnTheGpuAreCounted) {
  const std::vector<Rows> ranks = Measure(
      {perf::MakeCase(Collective::kAllReduce, 64, DataType::kF32, {ReduceOp::kSum}, 0, kRanks)},
      true);
  for (const Rows& rows : ranks) {
    ASSERT_TRUE(rows[0].ok()) << rows[0].status();
    EXPECT_EQ(rows[0]->out_of_place->wrong, kRanks);
    EXPECT_EQ(rows[0]->in_place->wrong, kRanks);
  }
}

TEST_F(DevicePerfTest, CopiesBetweenDifferentShapesOrDevicesAreRefused) {
  CudaGpuContext gpu(nccl_, 0);
  const auto device = gpu.Allocate(DataType::kF32, {4});
  ASSERT_TRUE(device.ok()) << device.status();
  const auto copy = [&](const Tensor& from, const Tensor& to) {
    return gpu.Copy({{from, to}}, std::nullopt, absl::Minutes(1));
  };
  const Tensor host = Tensor::Zeros(DataType::kF32, {5});
  EXPECT_EQ(copy(*device, host).code(), absl::StatusCode::kInvalidArgument);
  // A copy takes any layout, such as every second element.
  static_cast<float*>(host.data())[2] = 7;
  const Tensor second = Tensor::Strided(host.data(), DataType::kF32, {2}, {2}, host.owner());
  const auto first = device->Narrow(0, 0, 2);
  EXPECT_EQ(copy(second, *first), absl::OkStatus());
  const Tensor back = Tensor::Zeros(DataType::kF32, {2});
  EXPECT_EQ(copy(*first, back), absl::OkStatus());
  EXPECT_EQ(static_cast<float*>(back.data())[1], 7);
}

}  // namespace
}  // namespace cohort::worker
