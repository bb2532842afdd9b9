#include "worker/communicator/host/reduce/store_mode_choice.h"

#include <cstdint>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

constexpr int64_t kBytes = int64_t{64} << 10;

// The cost of a line.
struct Costs {
  absl::Duration through;
  absl::Duration past;
};
constexpr Costs kShared = {absl::Nanoseconds(2), absl::Nanoseconds(4)};
constexpr Costs kForeign = {absl::Nanoseconds(27), absl::Nanoseconds(2)};
// The data itself comes from memory.
constexpr Costs kSharedCold = {absl::Nanoseconds(12), absl::Nanoseconds(14)};

// Returns how many of `steps` went past the caches. `of` returns the costs of a step.
template <typename Of>
int PastCaches(StoreModeChoice& choice, int steps, Of of) {
  int past = 0;
  for (int i = 0; i < steps; ++i) {
    const StoreModeChoice::Step step = choice.Next();
    const Costs costs = of(i);
    if (step.stores == Stores::kStreaming) ++past;
    if (step.timed) {
      choice.Took(kBytes,
                  kBytes / 64 * (step.stores == Stores::kStreaming ? costs.past : costs.through));
    }
  }
  return past;
}

int PastCaches(StoreModeChoice& choice, int steps, const Costs& costs) {
  return PastCaches(choice, steps, [&](int) { return costs; });
}

TEST(StoreModeChoiceTest, ThroughTheCachesWhileThatIsFast) {
  StoreModeChoice choice;
  EXPECT_EQ(PastCaches(choice, 1000, kShared), 0);
}

TEST(StoreModeChoiceTest, ColdDataIsSeldomMistaken) {
  StoreModeChoice choice;
  EXPECT_LE(PastCaches(choice, 10000, kSharedCold), 150);
}

TEST(StoreModeChoiceTest, PastTheCachesSoonAfterStoresGotSlow) {
  StoreModeChoice choice;
  PastCaches(choice, 1000, kShared);
  EXPECT_GE(PastCaches(choice, 1000, kForeign), 940);
}

// Four ranks on two processors that share no cache: one reader is on this processor, two on the
// other.
TEST(StoreModeChoiceTest, TheMeanOfAllReadersCounts) {
  for (int readers : {2, 3, 4, 7, 8}) {
    SCOPED_TRACE(readers);
    StoreModeChoice choice;
    const auto one_in_three_is_near = [&](int i) {
      return i % readers % 3 == 0 ? kShared : kForeign;
    };
    EXPECT_GE(PastCaches(choice, 2000, one_in_three_is_near), 1900);
    const auto one_is_near = [&](int i) { return i % readers == 0 ? kShared : kForeign; };
    EXPECT_GE(PastCaches(choice, 2000, one_is_near), 1900);
  }
}

TEST(StoreModeChoiceTest, ReturnsToTheCaches) {
  StoreModeChoice choice;
  PastCaches(choice, 1000, kForeign);
  PastCaches(choice, 900, kShared);
  EXPECT_EQ(PastCaches(choice, 1000, kShared), 0);
}

TEST(StoreModeChoiceTest, OneThatWasInterruptedChangesLittle) {
  StoreModeChoice choice;
  int past = 0;
  for (int i = 0; i < 100; ++i) {
    past += PastCaches(choice, 97, kShared);
    while (!choice.Next().timed) {
    }
    choice.Took(kBytes, absl::Seconds(1));
  }
  EXPECT_LE(past, 200);
}

TEST(StoreModeChoiceTest, FewBytesAreNotTimed) {
  StoreModeChoice choice;
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

TEST(StoreModeChoiceTest, MeasuresTheTimeOfStores) {
  StoreModeChoice choice;
  Stores last = Stores::kCached;
  for (int i = 0; i < 60; ++i) {
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
