// The ranks of a fake NCCL, each with a device, a stream and a thread of its own.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_TEST_BASE_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_TEST_BASE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/clock.h"
#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker {

inline constexpr absl::Duration kLong = absl::Seconds(30);

class FakeNcclTest : public ::testing::Test {
 protected:
  struct Rank {
    int rank = 0;
    ncclComm_t comm = nullptr;
    cudaStream_t stream = nullptr;
  };

  void SetUp() override {
    cuda::FakeMachine machine;
    machine.devices = 8;
    cuda::ResetFakeRuntime(machine);
    nccl_ = std::make_unique<FakeNcclApi>();
  }
  void TearDown() override {
    nccl_->StopAll();
    for (Rank& rank : ranks_) cudaStreamSynchronize(rank.stream);
    nccl_.reset();
    for (Rank& rank : ranks_) cudaStreamDestroy(rank.stream);
    // Joins the threads of streams.
    cuda::ResetFakeRuntime();
  }

  // Runs `body` for each rank on a thread with its device, and joins them all.
  void OnRanks(const std::function<void(Rank&)>& body) {
    std::vector<std::thread> threads;
    for (Rank& rank : ranks_) {
      threads.emplace_back([&rank, &body] {
        ASSERT_EQ(cudaSetDevice(rank.rank), cudaSuccess);
        body(rank);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // Ranks with streams and no communicator.
  void MakeRanks(int count) {
    ranks_.resize(static_cast<size_t>(count));
    for (int rank = 0; rank < count; ++rank) ranks_[static_cast<size_t>(rank)].rank = rank;
    OnRanks([](Rank& rank) {
      ASSERT_EQ(cudaStreamCreateWithFlags(&rank.stream, cudaStreamNonBlocking), cudaSuccess);
    });
    ASSERT_EQ(nccl_->GetUniqueId(&id_), ncclSuccess);
  }

  ncclResult_t Init(Rank& rank, bool blocking) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = blocking ? 1 : 0;
    return nccl_->CommInitRankConfig(&rank.comm, static_cast<int>(ranks_.size()), id_, rank.rank,
                                     &config);
  }

  // A communicator of that many ranks, which has not run anything.
  void Form(int count, bool blocking = false) {
    MakeRanks(count);
    OnRanks([&](Rank& rank) { ASSERT_EQ(Await(rank.comm, Init(rank, blocking)), ncclSuccess); });
  }

  // Waits for a call that may be in progress, and returns its result.
  ncclResult_t Await(ncclComm_t comm, ncclResult_t result) {
    const Instant deadline = Clock::Steady().Now() + kLong;
    while (result == ncclInProgress && Clock::Steady().Now() < deadline) {
      std::this_thread::yield();
      if (const ncclResult_t asked = nccl_->CommGetAsyncError(comm, &result);
          asked != ncclSuccess) {
        return asked;
      }
    }
    return result;
  }
  // Expects that the call succeeds, and then waits for the stream.
  void Finish(Rank& rank, ncclResult_t result) {
    ASSERT_EQ(Await(rank.comm, result), ncclSuccess) << nccl_->GetLastError(rank.comm);
    ASSERT_EQ(cudaStreamSynchronize(rank.stream), cudaSuccess);
  }
  // Waits until `holds`, which others bring about.
  static bool Eventually(const std::function<bool()>& holds) {
    const Instant deadline = Clock::Steady().Now() + kLong;
    while (!holds()) {
      if (Clock::Steady().Now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  ncclResult_t AllReduce(Rank& rank, int32_t* data, size_t count = 1) {
    return nccl_->AllReduce(data, data, count, ncclInt32, ncclSum, rank.comm, rank.stream);
  }
  void DestroyAll() {
    OnRanks([&](Rank& rank) { EXPECT_EQ(nccl_->CommDestroy(rank.comm), ncclSuccess); });
  }
  void ExpectClean() {
    EXPECT_THAT(nccl_->misuses(), ::testing::IsEmpty());
    EXPECT_THAT(nccl_->leaks(), ::testing::IsEmpty());
  }

  std::unique_ptr<FakeNcclApi> nccl_;
  ncclUniqueId id_;
  std::vector<Rank> ranks_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_NCCL_TEST_BASE_H_
