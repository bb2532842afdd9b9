// Broadcasts whose root does not wait. They move the right data whichever rank is ahead, and no
// rank gets too far ahead. All ranks learn of a mismatch, those that had gone on included, from one
// call that none of them runs.
#include <unistd.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/host/shared/host_shared_memory.h"
#include "worker/communicator/mismatch.h"

namespace cohort::worker {
namespace {

constexpr int kMaxLead = HostSharedMemory::kLines / 2;
constexpr absl::Duration kShort = absl::Milliseconds(50);

Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }
Instant Soon() { return In(absl::Seconds(60)); }

// The ranks have no heaps: large data goes through buffers.
std::vector<std::unique_ptr<HostCommunicator>> MakeRanks(int size,
                                                         const std::vector<int>& names = {}) {
  std::vector<std::unique_ptr<HostCommunicator>> ranks;
  absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(size);
  EXPECT_TRUE(space.ok()) << space.status();
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<HostSharedMemory> mapped = HostSharedMemory::Attach(dup(space->fd()), size);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    HostMemory memory{*std::move(mapped), RankHeaps(static_cast<size_t>(size)), names};
    ranks.push_back(std::make_unique<HostCommunicator>(std::move(memory), rank));
  }
  return ranks;
}

absl::Status BroadcastOne(HostCommunicator& rank, int32_t& value, int root,
                          Instant deadline = Soon()) {
  return rank.EagerBroadcast(&value, &value, 1, DataType::kI32, root, deadline);
}

absl::Status Sum(HostCommunicator& rank, int32_t& value) {
  return rank.AllReduce(&value, &value, 1, DataType::kI32, {ReduceOp::kSum}, Soon());
}

// Runs `body` on a thread for each rank.
void OnAll(std::vector<std::unique_ptr<HostCommunicator>>& ranks,
           const std::function<void(HostCommunicator&)>& body) {
  std::vector<std::thread> threads;
  for (auto& rank : ranks) threads.emplace_back([&] { body(*rank); });
  for (std::thread& thread : threads) thread.join();
}

// Gathers through buffers several times: a rank that read from the wrong buffer would fail.
void ExpectWorks(HostCommunicator& rank) {
  constexpr int64_t kCount = 20000;
  for (int32_t round = 0; round < 4; ++round) {
    const std::vector<int32_t> input(kCount, 100 * round + rank.rank());
    std::vector<int32_t> output(static_cast<size_t>(kCount * rank.size()));
    ASSERT_TRUE(rank.AllGather(input.data(), output.data(), kCount, DataType::kI32, Soon()).ok());
    for (int other = 0; other < rank.size(); ++other) {
      ASSERT_EQ(output[static_cast<size_t>(other * kCount)], 100 * round + other);
      ASSERT_EQ(output[static_cast<size_t>(other * kCount + kCount - 1)], 100 * round + other);
    }
  }
}

TEST(EagerBroadcastTest, TheRootGoesOnAndNothingIsLost) {
  auto ranks = MakeRanks(2);
  for (int32_t i = 0; i < kMaxLead; ++i) {
    int32_t value = 1000 + i;
    ASSERT_TRUE(BroadcastOne(*ranks[0], value, 0, In(absl::ZeroDuration())).ok()) << i;
  }
  for (int32_t i = 0; i < kMaxLead; ++i) {
    int32_t value = 0;
    ASSERT_TRUE(BroadcastOne(*ranks[1], value, 0).ok());
    EXPECT_EQ(value, 1000 + i);
  }
}

TEST(EagerBroadcastTest, TheRootWaitsForARankThatIsTooFarBehindAndNamesIt) {
  auto ranks = MakeRanks(2);
  int32_t value = 7;
  absl::Status status;
  int calls = 0;
  while (status.ok() && calls <= 2 * kMaxLead) {
    status = BroadcastOne(*ranks[0], value, 0, In(kShort));
    ++calls;
  }
  EXPECT_EQ(calls, kMaxLead + 1);
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "rank 1 did not come")) << status;
  EXPECT_TRUE(absl::IsAborted(BroadcastOne(*ranks[1], value, 0)));
}

TEST(EagerBroadcastTest, TheRootWakesARankThatSleeps) {
  absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(2);
  ASSERT_TRUE(space.ok()) << space.status();
  absl::StatusOr<HostSharedMemory> mapped = HostSharedMemory::Attach(dup(space->fd()), 2);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  HostCommunicator root(HostMemory{*std::move(mapped), RankHeaps(2), {}}, 0);
  // To the root, rank 1 seems to sleep.
  space->sleepers().store(1);
  space->sleep_words(1).sleeps.store(1);
  int32_t value = 7;
  const absl::Status status = BroadcastOne(root, value, 0);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(space->sleep_words(1).event.load(), 1u);
}

TEST(EagerBroadcastTest, AReaderNamesTheRootThatDoesNotCome) {
  auto ranks = MakeRanks(3);
  int32_t value = 7;
  const absl::Status status = BroadcastOne(*ranks[1], value, 2, In(kShort));
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "rank 2 did not come")) << status;
}

TEST(EagerBroadcastTest, AReaderNamesARootOfALargerGroupByItsNumberThere) {
  auto ranks = MakeRanks(3, {4, 7, 9});
  int32_t value = 7;
  const absl::Status status = BroadcastOne(*ranks[1], value, 2, In(kShort));
  EXPECT_TRUE(absl::StrContains(status.message(), "rank 9 did not come")) << status;
}

// All ranks get the mismatch of the call before from this one.
void ExpectToldLater(HostCommunicator& rank, absl::string_view text) {
  int32_t value = 21;
  const absl::Status status = Sum(rank, value);
  EXPECT_TRUE(EarlierCallOf(status).has_value()) << "rank " << rank.rank() << ": " << status;
  EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
}

TEST(EagerBroadcastTest, ARankThatCalledSomethingElseFailsAtOnceAndAllRanksInTheNextCall) {
  auto ranks = MakeRanks(2);
  OnAll(ranks, [](HostCommunicator& rank) {
    int32_t value = 1;
    if (rank.rank() == 0) {
      ASSERT_TRUE(BroadcastOne(rank, value, 0).ok());
    } else {
      const absl::Status status = Sum(rank, value);
      EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      // The root will not come to explain.
      EXPECT_FALSE(IsMismatch(status));
      EXPECT_TRUE(absl::StrContains(status.message(), "rank 0 broadcast of 1 i32, root 0"))
          << status;
      EXPECT_TRUE(absl::StrContains(status.message(), "rank 1 all_reduce of 1 i32")) << status;
    }
    ExpectToldLater(rank, "rank 1 all_reduce of 1 i32");
    value = 21;
    ASSERT_TRUE(Sum(rank, value).ok());
    EXPECT_EQ(value, 42);
    ExpectWorks(rank);
  });
}

TEST(EagerBroadcastTest, ALargeCallThatFindsAFollowerLeavesBuffersInStep) {
  auto ranks = MakeRanks(2);
  OnAll(ranks, [](HostCommunicator& rank) {
    for (int i = 0; i < 3; ++i) {
      if (rank.rank() == 0) {
        int32_t value = 1;
        ASSERT_TRUE(BroadcastOne(rank, value, 0).ok());
      } else {
        std::vector<int32_t> much(50000);
        const absl::Status status = rank.AllReduce(much.data(), much.data(), 50000, DataType::kI32,
                                                   {ReduceOp::kSum}, Soon());
        EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
      }
      ExpectToldLater(rank, "rank 1 all_reduce of 50000 i32");
      ExpectWorks(rank);
    }
  });
}

// The call that finds the mismatch catches up with the broadcast before it, and must not take its
// own for another one.
TEST(EagerBroadcastTest, AMismatchAfterABroadcastIsReportedOnce) {
  auto ranks = MakeRanks(2);
  OnAll(ranks, [](HostCommunicator& rank) {
    int32_t value = 1;
    ASSERT_TRUE(BroadcastOne(rank, value, 0).ok());
    int32_t sums[2] = {1, 2};
    const absl::Status status =
        rank.AllReduce(sums, sums, rank.rank() + 1, DataType::kI32, {ReduceOp::kSum}, Soon());
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    ExpectWorks(rank);
  });
}

// No rank has gone on, so no rank hears of it later.
TEST(EagerBroadcastTest, IfTheRootCallsSomethingElseAllRanksGetTheErrorAtOnce) {
  auto ranks = MakeRanks(3);
  OnAll(ranks, [](HostCommunicator& rank) {
    int32_t value = 1;
    const absl::Status status = rank.rank() == 1 ? Sum(rank, value) : BroadcastOne(rank, value, 1);
    EXPECT_TRUE(IsMismatch(status)) << "rank " << rank.rank() << ": " << status;
    ExpectWorks(rank);
  });
}

TEST(EagerBroadcastTest, ACallThatDiffersForItselfLeavesTheEarlierErrorForTheNext) {
  auto ranks = MakeRanks(2);
  OnAll(ranks, [](HostCommunicator& rank) {
    for (int32_t i = 0; i < 3; ++i) {  // rank 1 fails three times, rank 0 goes on three times
      int32_t value = i;
      const absl::Status status =
          rank.rank() == 1 ? Sum(rank, value) : BroadcastOne(rank, value, 0);
      EXPECT_EQ(status.ok(), rank.rank() == 0) << status;
    }
    ExpectToldLater(rank, "rank 1 all_reduce of 1 i32");
    ExpectWorks(rank);
  });
}

TEST(EagerBroadcastTest, TwoDifferentRootsBothGetTheError) {
  auto ranks = MakeRanks(2);
  OnAll(ranks, [](HostCommunicator& rank) {
    int32_t value = 1;
    ASSERT_TRUE(BroadcastOne(rank, value, rank.rank()).ok());
    ExpectToldLater(rank, "root 1");
    ExpectWorks(rank);
  });
}

TEST(EagerBroadcastTest, WithBroadcastsAloneAllRanksGetAMismatchFromTheSameOne) {
  auto ranks = MakeRanks(3);
  OnAll(ranks, [](HostCommunicator& rank) {
    int32_t values[2] = {1, 2};
    const absl::Status status =
        rank.EagerBroadcast(values, values, rank.rank() == 1 ? 2 : 1, DataType::kI32, 0, Soon());
    EXPECT_EQ(status.ok(), rank.rank() != 1) << status;
    for (int i = 1; i <= kMaxLead + 2; ++i) {
      const absl::Status told = BroadcastOne(rank, values[0], 0);
      EXPECT_EQ(EarlierCallOf(told).has_value(), i == kMaxLead) << i << ": " << told;
      EXPECT_EQ(told.ok(), i != kMaxLead) << i << ": " << told;
    }
    ExpectWorks(rank);
  });
}

// Any calls in any order, on ranks that are now ahead and now behind.
void RandomCalls(HostCommunicator& rank, uint32_t seed, int calls) {
  std::mt19937 same(seed);  // on all ranks
  std::mt19937 own(seed + 1 + static_cast<uint32_t>(rank.rank()));
  const auto size = static_cast<int32_t>(rank.size());
  for (int32_t call = 0; call < calls; ++call) {
    if (own() % 64 == 0) std::this_thread::yield();
    const int root = static_cast<int>(same() % static_cast<uint32_t>(size));
    const auto kind = same() % 8;
    if (kind < 6) {
      constexpr int64_t kCounts[] = {0, 1, 8, 9, 700, 4096, 5000};
      const int64_t count = kCounts[same() % 7];
      const auto filled = [&](int32_t value) {
        return std::vector<int32_t>(static_cast<size_t>(count) + 1, value);
      };
      std::vector<int32_t> values = filled(rank.rank() == root ? call : -1);
      ASSERT_TRUE(
          rank.EagerBroadcast(values.data(), values.data(), count, DataType::kI32, root, Soon())
              .ok());
      for (int64_t i = 0; i < count; ++i) ASSERT_EQ(values[static_cast<size_t>(i)], call);
    } else if (kind == 6) {
      int32_t value = call + rank.rank();
      ASSERT_TRUE(Sum(rank, value).ok());
      ASSERT_EQ(value, size * call + size * (size - 1) / 2);
    } else {
      const std::vector<int32_t> input(3000, call + rank.rank());
      std::vector<int32_t> output(static_cast<size_t>(3000 * size));
      ASSERT_TRUE(rank.AllGather(input.data(), output.data(), 3000, DataType::kI32, Soon()).ok());
      for (int32_t other = 0; other < size; ++other) {
        ASSERT_EQ(output[static_cast<size_t>(3000 * other + 2999)], call + other);
      }
    }
  }
}

TEST(EagerBroadcastTest, AmongOtherCallsInAnyOrder) {
  for (const int size : {2, 3, 5}) {
    const auto seed = static_cast<uint32_t>(20261121 + size);
    SCOPED_TRACE(absl::StrCat(size, " ranks, seed ", seed));
    auto ranks = MakeRanks(size);
    OnAll(ranks, [&](HostCommunicator& rank) { RandomCalls(rank, seed, 3000); });
  }
}

}  // namespace
}  // namespace cohort::worker
