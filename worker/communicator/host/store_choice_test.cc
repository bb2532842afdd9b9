#include "worker/communicator/host/store_choice.h"

#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

constexpr int64_t kBytes = int64_t{64} << 10;
constexpr absl::Duration kFast = absl::Nanoseconds(2 * kBytes / 64);
constexpr absl::Duration kSlow = absl::Nanoseconds(27 * kBytes / 64);

// How many of `steps` went past the caches, when one through them takes so long.
int PastCaches(StoreChoice& choice, int steps, absl::Duration took) {
  int past = 0;
  for (int i = 0; i < steps; ++i) {
    const StoreChoice::Step step = choice.Next();
    EXPECT_FALSE(step.timed && step.stores == Stores::kStreaming) << "tells nothing of the caches";
    if (step.stores == Stores::kStreaming) ++past;
    if (step.timed) choice.Took(kBytes, took);
  }
  return past;
}

TEST(StoreChoiceTest, ThroughTheCachesWhileThatIsFast) {
  StoreChoice choice;
  EXPECT_EQ(PastCaches(choice, 1000, kFast), 0);
}

TEST(StoreChoiceTest, PastTheCachesSoonAfterStoresGotSlow) {
  StoreChoice choice;
  PastCaches(choice, 1000, kFast);
  EXPECT_GE(PastCaches(choice, 1000, kSlow), 980);
}

TEST(StoreChoiceTest, ComesBack) {
  StoreChoice choice;
  PastCaches(choice, 1000, kSlow);
  PastCaches(choice, 130, kFast);
  EXPECT_EQ(PastCaches(choice, 1000, kFast), 0);
}

TEST(StoreChoiceTest, OneThatWasInterruptedChangesNothing) {
  StoreChoice choice;
  for (int i = 0; i < 100; ++i) {
    PastCaches(choice, 8, kSlow / 100);
    while (!choice.Next().timed) {
    }
    choice.Took(kBytes, absl::Seconds(1));
    EXPECT_EQ(PastCaches(choice, 1, kFast), 0);
  }
}

TEST(StoreChoiceTest, FewBytesAreNotTimed) {
  StoreChoice choice;
  for (int i = 0; i < 100; ++i) {
    choice.Run(4096, [&](Stores stores) {
      EXPECT_EQ(stores, Stores::kCached);
      // As slow as can be.
      const Instant end = Clock::Steady().Now() + absl::Microseconds(20);
      while (Clock::Steady().Now() < end) {
      }
    });
  }
}

TEST(StoreChoiceTest, TimesWhatItRuns) {
  StoreChoice choice;
  Stores last = Stores::kCached;
  for (int i = 0; i < 20; ++i) {
    choice.Run(int64_t{8} << 10, [&](Stores stores) {
      last = stores;
      const Instant end = Clock::Steady().Now() + absl::Microseconds(20);
      while (stores == Stores::kCached && Clock::Steady().Now() < end) {
      }
    });
  }
  EXPECT_EQ(last, Stores::kStreaming);
}

}  // namespace
}  // namespace cohort::worker
