// An abort wakes ranks that sleep: they do not find out at their deadline.
#include <unistd.h>

#include <memory>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/abort_error.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/host/shared/host_shared_memory.h"

namespace cohort::worker {
namespace {

constexpr int kRanks = 3;
constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr absl::Duration kPrompt = absl::Seconds(2);

Instant In(absl::Duration duration) { return Clock::Steady().Now() + duration; }

// Rank 0 waits in a collective and rank 1 for a message until rank 2 aborts. Returns whether the abort
// woke both: a rank that is between two of its sleeps is not woken, and sees the abort itself.
bool AbortWakesBoth() {
  absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(kRanks);
  EXPECT_TRUE(space.ok()) << space.status();
  std::vector<std::unique_ptr<HostCommunicator>> ranks;
  for (int rank = 0; rank < kRanks; ++rank) {
    absl::StatusOr<HostSharedMemory> mapped = HostSharedMemory::Attach(dup(space->fd()), kRanks);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    HostMemory memory{*std::move(mapped), RankHeaps(kRanks), {}};
    ranks.push_back(std::make_unique<HostCommunicator>(std::move(memory), rank));
  }
  std::vector<absl::Status> statuses(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      char byte = 0;
      const Transfer transfer = Transfer::Receive(2, &byte, 1, DataType::kU8);
      statuses[rank] = rank == 0 ? ranks[0]->Barrier(In(kDeadline))
                                 : ranks[1]->Exchange({&transfer, 1}, In(kDeadline));
    });
  }
  const Instant give_up = In(kDeadline / 2);
  uint32_t events[2] = {0, 0};
  for (int rank = 0; rank < 2; ++rank) {
    const SleepWords& words = space->sleep_words(rank);
    while (words.sleeps.load() == 0 && Clock::Steady().Now() < give_up) std::this_thread::yield();
    events[rank] = words.event.load();
  }
  EXPECT_LT(Clock::Steady().Now(), give_up) << "they do not sleep";
  const Instant aborted = Clock::Steady().Now();
  ranks[2]->Abort("rank 2 aborted: enough");
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(Clock::Steady().Now() - aborted, kPrompt) << "they slept on until their deadline";
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status, AbortError("rank 2 aborted: enough"));
  }
  return space->sleep_words(0).event.load() != events[0] &&
         space->sleep_words(1).event.load() != events[1];
}

TEST(HostAbortTest, WakesRanksThatAreAsleep) {
  bool woken = false;
  for (int attempt = 0; attempt < 10 && !woken; ++attempt) woken = AbortWakesBoth();
  EXPECT_TRUE(woken) << "the abort woke none of ten pairs of sleepers";
}

}  // namespace
}  // namespace cohort::worker
