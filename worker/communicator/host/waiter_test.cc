#include "worker/communicator/host/waiter.h"

#include "gtest/gtest.h"
#include "worker/communicator/host/host_space.h"

namespace cohort::worker {
namespace {

// What a rank waits for comes true, and the rank that did it leaves, between two looks of the one
// that waits: the wait has succeeded.
TEST(WaiterTest, WhatCameBeforeTheEndIsNotLost) {
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(60);
  // The look before it sleeps, and the one behind.
  for (const int last : {1, 2}) {
    const HostSpace space = *HostSpace::Create(2);
    WaitLog log;
    const Waiter waiter(space, 0, /*gives_way=*/true, &log);
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
