// Ranks of `NcclCommunicator` over the fake, each with a stream of a caller's, for tests.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_NCCL_GROUP_TEST_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_NCCL_GROUP_TEST_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/nccl/testing/nccl_ranks.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker {

inline Instant In(absl::Duration time) { return Clock::Steady().Now() + time; }
inline Instant Soon() { return In(absl::Seconds(60)); }

class NcclGroupTest : public ::testing::TestWithParam<int> {
 protected:
  static constexpr int kMostRanks = 5;

  NcclGroupTest() {
    cuda::FakeMachine machine;
    machine.devices = kMostRanks;
    cuda::ResetFakeRuntime(machine);
    nccl_ = std::make_shared<FakeNcclApi>();
  }
  ~NcclGroupTest() override {
    ranks_.clear();
    nccl_->Release();
    for (cuda::Stream& stream : streams_) {
      const absl::Status idle = cuda::Synchronize(stream.get(), Soon());
      EXPECT_TRUE(idle.ok()) << idle;
    }
    streams_.clear();
    if (misuse_.empty()) {
      EXPECT_THAT(nccl_->misuses(), ::testing::IsEmpty());
    } else {
      EXPECT_THAT(nccl_->misuses(), ::testing::Each(::testing::HasSubstr(misuse_)));
    }
    EXPECT_THAT(nccl_->leaks(), ::testing::IsEmpty());
    EXPECT_EQ(cuda::AliveInFakeRuntime(), "");
  }

  void Form(int size, const NcclRanksOptions& options = {}) {
    ranks_ = FormNcclRanks(nccl_, size, Soon(), options);
    for (const NcclRank& rank : ranks_) ASSERT_TRUE(rank.nccl.ok()) << rank.nccl.status();
    for (int rank = 0; rank < size; ++rank) {
      absl::StatusOr<cuda::Stream> stream = cuda::Stream::Create(rank);
      ASSERT_TRUE(stream.ok()) << stream.status();
      streams_.push_back(*std::move(stream));
    }
  }
  int size() const { return static_cast<int>(ranks_.size()); }
  NcclCommunicator& rank(int rank) { return **ranks_[static_cast<size_t>(rank)].nccl; }
  cudaStream_t stream(int rank) const { return streams_[static_cast<size_t>(rank)].get(); }
  // By rank, each on a thread of its own.
  std::vector<absl::Status> Run(const std::function<absl::Status(NcclCommunicator&)>& body) {
    std::vector<absl::Status> statuses(ranks_.size());
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].nccl.ok()) continue;
      threads.emplace_back([&, rank] { statuses[rank] = body(**ranks_[rank].nccl); });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  void RunWell(const std::function<absl::Status(NcclCommunicator&)>& body) {
    for (const absl::Status& status : Run(body)) EXPECT_TRUE(status.ok()) << status;
  }
  // Waits until `holds`, which others bring about.
  static bool Eventually(const std::function<bool()>& holds) {
    const Instant deadline = Soon();
    while (!holds()) {
      if (Clock::Steady().Now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  static FlatCall Of(Collective collective, int64_t count, int root = 0) {
    FlatCall operation;
    operation.collective = collective;
    operation.count = count;
    operation.type = DataType::kF32;
    operation.root = root;
    return operation;
  }
  NcclCallOptions On(const NcclCommunicator& group,
                     absl::Duration timeout = absl::Seconds(60)) const {
    return {stream(group.rank()), timeout};
  }
  // Enqueues an AllReduce of one number, in place.
  absl::Status EnqueueSum(NcclCommunicator& group, float* number,
                          absl::Duration timeout = absl::Seconds(60)) const {
    return group.Enqueue(Of(Collective::kAllReduce, 1), number, number, On(group, timeout), Soon());
  }

  std::shared_ptr<FakeNcclApi> nccl_;
  std::string misuse_;  // that a test is about, and no other
  std::vector<cuda::Stream> streams_;
  NcclRanks ranks_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_NCCL_GROUP_TEST_H_
