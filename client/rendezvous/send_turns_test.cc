#include "client/rendezvous/send_turns.h"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {

class SendTurnsTest : public ::testing::Test {
 protected:
  // A thread that waits for `lane`, gives up, and runs `meanwhile` before it withdraws.
  static bool GiveUp(SendTurns& turns, const SendLane& lane,
                     const std::function<void()>& meanwhile) {
    return turns.AwaitTurn(lane, [&meanwhile](SendTurns::Turn&) {
      meanwhile();
      return false;
    });
  }
};

namespace {

using ::testing::ElementsAre;

const SendLane kLane{1, "t"};

Instant In(absl::Duration time) { return Clock::Steady().Now() + time; }

TEST_F(SendTurnsTest, ComeOneAfterTheOther) {
  SendTurns turns;
  std::vector<int> started;
  for (int i = 0; i < 3; ++i) {
    turns.Take(kLane, [&started, i] { started.push_back(i); });
  }
  EXPECT_THAT(started, ElementsAre(0));
  turns.End(kLane);
  EXPECT_THAT(started, ElementsAre(0, 1));
  turns.End(kLane);
  turns.End(kLane);
  EXPECT_THAT(started, ElementsAre(0, 1, 2));
  turns.Take(kLane, [&started] { started.push_back(3); });
  EXPECT_THAT(started, ElementsAre(0, 1, 2, 3));
}

TEST_F(SendTurnsTest, OtherLanesAreFree) {
  SendTurns turns;
  EXPECT_TRUE(turns.Await(kLane, In(absl::ZeroDuration())));
  EXPECT_TRUE(turns.Await({1, "u"}, In(absl::ZeroDuration())));
  EXPECT_TRUE(turns.Await({2, "t"}, In(absl::ZeroDuration())));
  EXPECT_FALSE(turns.Await(kLane, In(absl::ZeroDuration())));
}

TEST_F(SendTurnsTest, WhoGaveUpIsPassedOver) {
  SendTurns turns;
  std::vector<int> started;
  turns.Take(kLane, [&] { started.push_back(0); });
  EXPECT_FALSE(turns.Await(kLane, In(absl::Milliseconds(1))));
  turns.Take(kLane, [&] { started.push_back(1); });
  turns.End(kLane);
  EXPECT_THAT(started, ElementsAre(0, 1));
}

TEST_F(SendTurnsTest, ATurnThatArrivesAsItsWaiterGivesUpIsPassedOn) {
  SendTurns turns;
  ASSERT_TRUE(turns.Await(kLane, In(absl::ZeroDuration())));
  const bool got = GiveUp(turns, kLane, [&turns] { turns.End(kLane); });
  EXPECT_TRUE(got) << "the lane was given to a thread that does not know it";
  // If that thread does not end its turn, each send behind it waits until its deadline.
  std::vector<int> started;
  turns.Take(kLane, [&started] { started.push_back(0); });
  if (got) turns.End(kLane);
  EXPECT_THAT(started, ElementsAre(0)) << "the turn was lost: the next send would hang";
}

TEST_F(SendTurnsTest, AWaiterThatGivesUpInTimeLeavesTheLaneToTheNext) {
  SendTurns turns;
  std::vector<int> started;
  ASSERT_TRUE(turns.Await(kLane, In(absl::ZeroDuration())));
  EXPECT_FALSE(GiveUp(turns, kLane, [&] {
    turns.Take(kLane, [&started] { started.push_back(0); });
  }));
  EXPECT_THAT(started, ElementsAre());
  turns.End(kLane);
  EXPECT_THAT(started, ElementsAre(0));
}

TEST_F(SendTurnsTest, OneAtATimeAmongThreads) {
  SendTurns turns;
  int inside = 0;  // only for the thread that has the lane
  int turn_count = 0;
  std::atomic<int> gave_up_count{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 2000; ++round) {
        // Some are so impatient that giving up coincides with the turn.
        if (!turns.Await(kLane, In(i == 0 ? absl::Microseconds(20) : absl::Seconds(60)))) {
          ++gave_up_count;
          continue;
        }
        EXPECT_EQ(++inside, 1);
        ++turn_count;
        --inside;
        turns.End(kLane);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turn_count + gave_up_count, 4 * 2000);
  EXPECT_TRUE(turns.Await(kLane, In(absl::ZeroDuration()))) << "the lane was not given back";
}

}  // namespace
}  // namespace cohort::client
