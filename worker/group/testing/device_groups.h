// Groups with tensors on GPUs for tests, formed through a real coordinator. They use the fake NCCL
// and the fake CUDA runtime; each rank has a thread of its own.
#ifndef COHORT_WORKER_GROUP_TESTING_DEVICE_GROUPS_H_
#define COHORT_WORKER_GROUP_TESTING_DEVICE_GROUPS_H_

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/tensor/tensor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/group/gpu/cuda_gpu_context.h"
#include "worker/group/local_group.h"

namespace cohort::worker {

using MadeGroup = absl::StatusOr<std::unique_ptr<client::Group>>;

// This process can read and write the memory of fake devices.
inline float* Floats(const Tensor& tensor) { return static_cast<float*>(tensor.data()); }

class DeviceGroups : public ::testing::Test {
 protected:
  static constexpr int kMostRanks = 3;
  static constexpr Reduction kSum = {ReduceOp::kSum};

  void SetUp() override {
    cuda::FakeMachine machine;
    machine.devices = kMostRanks;
    machine.peer_access = true;
    cuda::ResetFakeRuntime(machine);
    nccl_ = std::make_shared<FakeNcclApi>();
    const absl::Status started = coordinator_.Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  std::shared_ptr<GpuContext> GpuOf(int rank) {
    return std::make_shared<CudaGpuContext>(nccl_, rank, gpu_options_[static_cast<size_t>(rank)]);
  }
  LocalGroupOptions Options(int rank, Placement placement) {
    LocalGroupOptions options;
    options.membership.connection.address = coordinator_.address();
    options.membership.group = "devices";
    options.membership.rank = rank;
    options.membership.world_size = size_;
    options.bootstrap.placement = placement;
    if (!hosts_.empty()) options.bootstrap.host_identity = hosts_[static_cast<size_t>(rank)];
    if (placement != Placement::kHost) options.gpu_context = GpuOf(rank);
    return options;
  }

  virtual MadeGroup Make(int rank, Placement placement) {
    return LocalGroup::Create(Options(rank, placement));
  }
  std::vector<MadeGroup> Create(const std::vector<Placement>& placements) {
    std::vector<MadeGroup> made;
    for (int rank = 0; rank < size_; ++rank) made.emplace_back(absl::UnknownError("not yet"));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        const auto at = static_cast<size_t>(rank);
        made[at] = Make(rank, placements[at]);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return made;
  }
  void Form(Placement placement, int size = kMostRanks) {
    size_ = size;
    for (MadeGroup& made : Create(std::vector<Placement>(static_cast<size_t>(size), placement))) {
      ASSERT_TRUE(made.ok()) << made.status();
      groups_.push_back(*std::move(made));
    }
  }

  // Runs `body` on all ranks. Returns the statuses, by rank.
  std::vector<absl::Status> Run(const std::function<absl::Status(client::Group&)>& body) {
    std::vector<absl::Status> statuses(groups_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < groups_.size(); ++rank) {
      threads.emplace_back([&, rank] { statuses[rank] = body(*groups_[rank]); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  void ExpectSums(bool on_device) {
    for (const absl::Status& status : Run([&](client::Group& group) {
           const Device device = on_device ? group.device() : Device::Host();
           const absl::StatusOr<Tensor> tensor = group.Allocate(DataType::kF32, {5}, device);
           if (!tensor.ok()) return tensor.status();
           EXPECT_EQ(tensor->device(), device);
           std::fill_n(Floats(*tensor), 5, static_cast<float>(group.rank() + 1));
           const absl::Status status = group.AllReduce(*tensor, *tensor, kSum);
           EXPECT_EQ(Floats(*tensor)[4], size_ * (size_ + 1) / 2) << "rank " << group.rank();
           return status;
         })) {
      EXPECT_TRUE(status.ok()) << status;
    }
  }

  cohort::testing::CoordinatorProcess coordinator_{{}};
  int size_ = kMostRanks;
  std::vector<GpuContextOptions> gpu_options_{kMostRanks};  // by rank
  std::vector<std::string> hosts_;                      // by rank: its host identity
  std::shared_ptr<FakeNcclApi> nccl_;
  std::vector<std::unique_ptr<client::Group>> groups_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_DEVICE_GROUPS_H_
