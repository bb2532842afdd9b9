#include "worker/communicator/host/shared/futex_waiter.h"

#include <sched.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "base/abort_error.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

RankSet Nothing() { return RankSet(); }

// Keeps the calling thread on one processor as long as it lives.
class Pin {
 public:
  explicit Pin(int processor) {
    sched_getaffinity(0, sizeof(before_), &before_);
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    ok_ = sched_setaffinity(0, sizeof(set), &set) == 0;
  }
  ~Pin() { sched_setaffinity(0, sizeof(before_), &before_); }
  Pin(const Pin&) = delete;
  Pin& operator=(const Pin&) = delete;

  bool ok() const { return ok_; }

 private:
  cpu_set_t before_;
  bool ok_ = false;
};

// Two ranks on one processor: the rank that looks keeps the other from running.
TEST(FutexWaiterTest, OffersTheProcessorToARankThatWaitsOnTheSameOne) {
  if (sched_getcpu() < 0) GTEST_SKIP() << "the kernel does not tell the processor's number";
  const HostSharedMemory space = *HostSharedMemory::Create(2);
  if (space.crowded()) GTEST_SKIP() << "one processor: ranks never look for long there";
  const int processor = sched_getcpu();
  std::atomic<bool> waits{false};
  std::atomic<bool> looks{false};
  std::atomic<bool> done{false};

  std::thread other([&] {
    const Pin pin(processor);
    ASSERT_TRUE(pin.ok());
    const FutexWaiter waiter(space, 1);
    // This wait stores where rank 1 runs, after its first look.
    int own_looks = 0;
    const auto rank_0_looks = [&] {
      if (++own_looks > 1) waits.store(true);
      return looks.load();
    };
    EXPECT_TRUE(waiter.Await(rank_0_looks, Soon(), Nothing).ok());
    done.store(true);
  });
  int calls = 0;
  std::thread one([&] {
    const Pin pin(processor);
    ASSERT_TRUE(pin.ok());
    while (!waits.load()) sched_yield();
    const FutexWaiter waiter(space, 0);
    const auto is_done = [&] {
      // Rank 1 is runnable from here on, and needs this processor.
      looks.store(true);
      if (space.sleep_words(1).sleeps.load() != 0) waiter.WakeNow(1);
      ++calls;
      return done.load();
    };
    EXPECT_TRUE(waiter.Await(is_done, Soon(), Nothing).ok());
  });
  one.join();
  other.join();
  // A rank that does not share its processor looks 1500 times before it offers it.
  EXPECT_LT(calls, 1000);
}

TEST(FutexWaiterTest, StoresWhereItRunsAndKeepsLookingBesideARankElsewhere) {
  if (sched_getcpu() < 0) GTEST_SKIP() << "the kernel does not tell the processor's number";
  const HostSharedMemory space = *HostSharedMemory::Create(2);
  if (space.crowded()) GTEST_SKIP() << "one processor: ranks never look for long there";
  const int processor = sched_getcpu();
  const Pin pin(processor);
  ASSERT_TRUE(pin.ok());
  space.sleep_words(1).processor.store(static_cast<uint32_t>(processor) + 2);
  const FutexWaiter waiter(space, 0);
  int calls = 0;
  EXPECT_TRUE(waiter.Await([&] { return ++calls > 1400; }, Soon(), Nothing).ok());
  EXPECT_EQ(space.sleep_words(0).processor.load(), static_cast<uint32_t>(processor) + 1);
}

// A rank that shares its processor looks in vain until it offers the processor.
TEST(FutexWaiterTest, GlancesOnceAfterAWaitBesideARankOnTheSameProcessor) {
  if (sched_getcpu() < 0) GTEST_SKIP() << "the kernel does not tell the processor's number";
  const HostSharedMemory space = *HostSharedMemory::Create(2);
  if (space.crowded()) GTEST_SKIP() << "one processor: ranks never look for long there";
  const int processor = sched_getcpu();
  const Pin pin(processor);
  ASSERT_TRUE(pin.ok());
  const FutexWaiter waiter(space, 0);
  const auto glances = [&waiter] {
    int calls = 0;
    EXPECT_FALSE(waiter.Glance([&] {
      ++calls;
      return false;
    }));
    return calls;
  };
  const auto wait = [&waiter] {
    int calls = 0;
    EXPECT_TRUE(waiter.Await([&] { return ++calls > 2; }, Soon(), Nothing).ok());
  };
  space.sleep_words(1).processor.store(static_cast<uint32_t>(processor) + 1);
  wait();
  EXPECT_EQ(glances(), 1);
  // Rank 1 has moved to another processor.
  space.sleep_words(1).processor.store(static_cast<uint32_t>(processor) + 2);
  wait();
  EXPECT_GT(glances(), 10);
}

// The kernel places a rank that is woken on an idle processor.
TEST(FutexWaiterTest, SleepsOnceAfterManyWaitsBesideARankOnTheSameProcessor) {
  if (sched_getcpu() < 0) GTEST_SKIP() << "the kernel does not tell the processor's number";
  const HostSharedMemory space = *HostSharedMemory::Create(2);
  if (space.crowded()) GTEST_SKIP() << "one processor: ranks never look for long there";
  const int processor = sched_getcpu();
  const Pin pin(processor);
  ASSERT_TRUE(pin.ok());
  space.sleep_words(1).processor.store(static_cast<uint32_t>(processor) + 1);
  const FutexWaiter waiter(space, 0);
  std::vector<int> waits_awake;
  for (int wait = 1; wait <= 45; ++wait) {
    bool slept = false;
    int calls = 0;
    const auto done = [&] {
      slept = slept || space.sleep_words(0).sleeps.load() != 0;
      return slept || ++calls > 5;
    };
    EXPECT_TRUE(waiter.Await(done, Soon(), Nothing).ok());
    EXPECT_TRUE(slept || (wait != 21 && wait != 41)) << "at wait " << wait;
    if (!slept) waits_awake.push_back(wait);
  }
  // On a busy machine a yield can take so long that a rank sleeps after it.
  EXPECT_GT(waits_awake.size(), 5);
}

// A wake-up that is lost costs a fraction of a second, not the whole timeout.
TEST(FutexWaiterTest, LooksAgainThoughNoRankWakesIt) {
  const HostSharedMemory space = *HostSharedMemory::Create(2);
  const FutexWaiter waiter(space, 0);
  std::atomic<bool> done{false};
  std::thread forgetful([&] {
    while (space.sleep_words(0).sleeps.load() == 0) sched_yield();
    done.store(true);  // without a wake-up
  });
  const Instant begin = Clock::Steady().Now();
  const Instant deadline = begin + absl::Seconds(20);
  EXPECT_TRUE(waiter.Await([&] { return done.load(); }, deadline, Nothing).ok());
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(15)) << "it slept until the deadline";
  forgetful.join();
}

// Another process writes the cause. An error without a message would name no culprit.
TEST(FutexWaiterTest, ACauseWithoutTextIsAnErrorWithAMessage) {
  const HostSharedMemory space = *HostSharedMemory::Create(2);
  WaitLog log;
  const FutexWaiter waiter(space, 0, /*gives_way=*/true, &log);
  waiter.SetPoison("");
  const absl::Status status =
      waiter.Await([] { return false; }, Clock::Steady().Now() + absl::Seconds(60),
                   [] { return RankSet(); });
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_EQ(status.message(), "a rank ended the communicator and gave no cause");
}

// A cause may name many ranks. The words behind the text belong to the ranks that sleep.
TEST(FutexWaiterTest, ALongCauseIsCutWhereItsRoomEnds) {
  for (const size_t size : {Poison::kMaxText, Poison::kMaxText + 1, size_t{10000}}) {
    const HostSharedMemory space = *HostSharedMemory::Create(2);
    const FutexWaiter waiter(space, 0);
    std::string cause = "rank 1 gave up barrier: ";
    while (cause.size() < size) cause += static_cast<char>('a' + cause.size() % 26);
    waiter.SetPoison(cause);
    EXPECT_EQ(waiter.CauseOfPoison(), AbortError(cause.substr(0, Poison::kMaxText)));
    EXPECT_EQ(space.poison().size, Poison::kMaxText);
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(space.sleep_words(rank).event.load(), 0u) << "rank " << rank;
      EXPECT_EQ(space.sleep_words(rank).sleeps.load(), 0u) << "rank " << rank;
    }
  }
}

// The awaited rank arrives and leaves between two looks of the waiting rank: the wait has
// succeeded.
TEST(FutexWaiterTest, AnArrivalBeforeTheEndIsNotLost) {
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(60);
  // The look before it sleeps, and the one behind.
  for (const int last : {1, 2}) {
    const HostSharedMemory space = *HostSharedMemory::Create(2);
    WaitLog log;
    const FutexWaiter waiter(space, 0, /*gives_way=*/true, &log);
    bool sleeps = false;
    bool here = false;
    int looks = 0;
    const auto done = [&] {
      const bool was_here = here;
      if (sleeps && ++looks == last) {
        here = true;
        waiter.SetPoison("rank 1 left the group");
      }
      return was_here;
    };
    const absl::Status status = waiter.Await(done, deadline, [&] {
      sleeps = true;
      return RankSet();
    });
    EXPECT_TRUE(status.ok()) << "at look " << last << ": " << status;
  }
}

}  // namespace
}  // namespace cohort::worker
