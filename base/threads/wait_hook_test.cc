#include "base/threads/wait_hook.h"

#include <thread>

#include "absl/time/time.h"
#include "base/threads/hooked_call.h"
#include "base/threads/mutex.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr absl::Duration kLong = absl::Seconds(20);

struct Shared {
  Mutex mutex;
  CondVar changed;
  bool over ABSL_GUARDED_BY(mutex) = false;

  void End() {
    MutexLock lock(&mutex);
    over = true;
    changed.SignalAll();
  }
};

TEST(WaitHookTest, RunsInAnAwait) {
  Shared shared;
  const auto end = [&shared] { shared.End(); };  // needs the lock
  const WaitHook hook(end);
  MutexLock lock(&shared.mutex);
  EXPECT_TRUE(shared.mutex.AwaitWithTimeout(absl::Condition(&shared.over), kLong));
}

TEST(WaitHookTest, RunsInAWaitForASignal) {
  Shared shared;
  const auto end = [&shared] { shared.End(); };
  const WaitHook hook(end);
  MutexLock lock(&shared.mutex);
  while (!shared.over) {
    ASSERT_FALSE(shared.changed.WaitWithTimeout(&shared.mutex, kLong));
  }
}

TEST(WaitHookTest, RunsAgainUntilTheWaitIsOver) {
  Shared shared;
  int runs = 0;
  const auto count = [&] {
    if (++runs == 3) shared.End();
  };
  const WaitHook hook(count);
  MutexLock lock(&shared.mutex);
  EXPECT_TRUE(shared.mutex.AwaitWithTimeout(absl::Condition(&shared.over), kLong));
  EXPECT_EQ(runs, 3);
}

TEST(WaitHookTest, LeavesTheTimeoutAsItIs) {
  Shared shared;
  int runs = 0;
  const auto count = [&runs] { ++runs; };
  const WaitHook hook(count);
  MutexLock lock(&shared.mutex);
  EXPECT_FALSE(shared.mutex.AwaitWithTimeout(absl::Condition(&shared.over), absl::Milliseconds(120)));
  EXPECT_GE(runs, 1);
  EXPECT_FALSE(shared.mutex.AwaitWithTimeout(absl::Condition(&shared.over), absl::Milliseconds(1)));
  EXPECT_TRUE(shared.changed.WaitWithTimeout(&shared.mutex, absl::Milliseconds(1)));
}

TEST(WaitHookTest, BelongsToItsThread) {
  Shared shared;
  const auto end = [&shared] { shared.End(); };
  const WaitHook hook(end);
  bool other_is_hooked = true;
  std::thread other([&] { other_is_hooked = HookedWait().hooked(); });
  other.join();
  EXPECT_FALSE(other_is_hooked);
  EXPECT_TRUE(HookedWait().hooked());
}

TEST(WaitHookTest, HasNoHookWithin) {
  bool hooked_within = true;
  const auto look = [&hooked_within] { hooked_within = HookedWait().hooked(); };
  const WaitHook hook(look);
  HookedWait().Run();
  EXPECT_FALSE(hooked_within);
  EXPECT_EQ(WaitHook::Current(), &hook);
}

TEST(WaitHookTest, TheInnermostCounts) {
  int outer_runs = 0, inner_runs = 0;
  const auto count_outer = [&outer_runs] { ++outer_runs; };
  const auto count_inner = [&inner_runs] { ++inner_runs; };
  const WaitHook outer(count_outer);
  {
    const WaitHook inner(count_inner);
    HookedWait().Run();
  }
  HookedWait().Run();
  EXPECT_EQ(inner_runs, 1);
  EXPECT_EQ(outer_runs, 1);
}

TEST(HookedCallTest, RunsTheHookWhileAnotherLibraryWaits) {
  Shared shared;
  const auto end = [&shared] { shared.End(); };
  const WaitHook hook(end);
  RunHooked([&shared] {  // as another library: this thread has no hook
    EXPECT_EQ(WaitHook::Current(), nullptr);
    MutexLock lock(&shared.mutex);
    EXPECT_TRUE(shared.mutex.AwaitWithTimeout(absl::Condition(&shared.over), kLong));
  });
}

TEST(HookedCallTest, WithoutAHookTheCallerRunsIt) {
  std::thread::id ran;
  RunHooked([&ran] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
}

}  // namespace
}  // namespace cohort
