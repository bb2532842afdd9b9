// Several groups on the same GPUs, called from several threads: all devices get their operations in
// one order.
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/group/testing/device_groups.h"

namespace cohort::worker {
namespace {

using client::Group;

class DeviceOrderTest : public DeviceGroups {
 protected:
  MadeGroup Make(int rank, Placement placement) override {
    LocalGroupOptions options = Options(rank, placement);
    options.membership.group = name_;
    return LocalGroup::Create(std::move(options));
  }

  std::string name_;
};

TEST_F(DeviceOrderTest, ThreadsWithoutCoordinationIssueInOneOrder) {
  constexpr int kRounds = 1000;
  name_ = "reduces";
  Form(Placement::kBoth);
  name_ = "gathers";
  Form(Placement::kBoth);
  std::vector<absl::Status> statuses(groups_.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < groups_.size(); ++i) {
    threads.emplace_back([&, i] {
      Group& group = *groups_[i];
      const bool reduces = group.name() == "reduces";
      const absl::StatusOr<Tensor> part = group.Allocate(DataType::kF32, {2}, group.device());
      const absl::StatusOr<Tensor> all =
          group.Allocate(DataType::kF32, {2 * kMostRanks}, group.device());
      if (!part.ok() || !all.ok()) return;
      for (int round = 0; round < kRounds && statuses[i].ok(); ++round) {
        statuses[i] = reduces ? group.AllReduce(*all, *all, kSum) : group.AllGather(*part, *all, 0);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const absl::Status& status : statuses) EXPECT_EQ(status, absl::OkStatus());
  std::vector<std::string> first;
  for (int rank = 0; rank < kMostRanks; ++rank) {
    std::vector<std::string> order;
    for (const std::string& function : nccl_->functions(rank)) {
      if (function == "ncclAllReduce" || function == "ncclAllGather") order.push_back(function);
    }
    EXPECT_EQ(order.size(), 2u * kRounds);
    if (rank == 0) first = order;
    EXPECT_EQ(order, first) << "rank " << rank;
  }
  EXPECT_THAT(nccl_->misuses(), ::testing::IsEmpty());
}

}  // namespace
}  // namespace cohort::worker
