#include "client/rendezvous/session/send_fifo.h"

#include <atomic>
#include <functional>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {

class SendFifoTest : public ::testing::Test {
 protected:
  // A thread that waits for `key`, gives up, and runs `meanwhile` before it withdraws.
  static bool GiveUp(SendFifo& fifo, const SendFifoKey& key,
                     const std::function<void()>& meanwhile) {
    return fifo.AwaitWakeup(key, [&meanwhile](SendFifo::Wakeup&) {
      meanwhile();
      return false;
    });
  }
};

namespace {

using ::testing::ElementsAre;

const SendFifoKey kKey{1, "t"};

Instant In(absl::Duration time) { return Clock::Steady().Now() + time; }

TEST_F(SendFifoTest, ComeOneAfterTheOther) {
  SendFifo fifo;
  std::vector<int> started;
  for (int i = 0; i < 3; ++i) {
    fifo.Take(kKey, [&started, i] { started.push_back(i); });
  }
  EXPECT_THAT(started, ElementsAre(0));
  fifo.End(kKey);
  EXPECT_THAT(started, ElementsAre(0, 1));
  fifo.End(kKey);
  fifo.End(kKey);
  EXPECT_THAT(started, ElementsAre(0, 1, 2));
  fifo.Take(kKey, [&started] { started.push_back(3); });
  EXPECT_THAT(started, ElementsAre(0, 1, 2, 3));
}

TEST_F(SendFifoTest, OtherKeysAreFree) {
  SendFifo fifo;
  EXPECT_TRUE(fifo.Await(kKey, In(absl::ZeroDuration())));
  EXPECT_TRUE(fifo.Await({1, "u"}, In(absl::ZeroDuration())));
  EXPECT_TRUE(fifo.Await({2, "t"}, In(absl::ZeroDuration())));
  EXPECT_FALSE(fifo.Await(kKey, In(absl::ZeroDuration())));
}

TEST_F(SendFifoTest, ASendThatGaveUpIsSkipped) {
  SendFifo fifo;
  std::vector<int> started;
  fifo.Take(kKey, [&] { started.push_back(0); });
  EXPECT_FALSE(fifo.Await(kKey, In(absl::Milliseconds(1))));
  fifo.Take(kKey, [&] { started.push_back(1); });
  fifo.End(kKey);
  EXPECT_THAT(started, ElementsAre(0, 1));
}

TEST_F(SendFifoTest, AWakeupThatArrivesAsItsWaiterGivesUpIsPassedOn) {
  SendFifo fifo;
  ASSERT_TRUE(fifo.Await(kKey, In(absl::ZeroDuration())));
  const bool got = GiveUp(fifo, kKey, [&fifo] { fifo.End(kKey); });
  EXPECT_TRUE(got) << "the FIFO was given to a thread that does not know it";
  // If that thread does not call End, each send behind it waits until its deadline.
  std::vector<int> started;
  fifo.Take(kKey, [&started] { started.push_back(0); });
  if (got) fifo.End(kKey);
  EXPECT_THAT(started, ElementsAre(0)) << "the wake-up was lost: the next send would hang";
}

TEST_F(SendFifoTest, AWaiterThatGivesUpInTimeLeavesTheFifoToTheNext) {
  SendFifo fifo;
  std::vector<int> started;
  ASSERT_TRUE(fifo.Await(kKey, In(absl::ZeroDuration())));
  EXPECT_FALSE(GiveUp(fifo, kKey, [&] { fifo.Take(kKey, [&started] { started.push_back(0); }); }));
  EXPECT_THAT(started, ElementsAre());
  fifo.End(kKey);
  EXPECT_THAT(started, ElementsAre(0));
}

TEST_F(SendFifoTest, OneAtATimeAmongThreads) {
  SendFifo fifo;
  int inside = 0;  // only for the thread that holds the FIFO
  int turn_count = 0;
  std::atomic<int> gave_up_count{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 2000; ++round) {
        // Some are so short of time that giving up coincides with the wake-up.
        if (!fifo.Await(kKey, In(i == 0 ? absl::Microseconds(20) : absl::Seconds(60)))) {
          ++gave_up_count;
          continue;
        }
        EXPECT_EQ(++inside, 1);
        ++turn_count;
        --inside;
        fifo.End(kKey);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(turn_count + gave_up_count, 4 * 2000);
  EXPECT_TRUE(fifo.Await(kKey, In(absl::ZeroDuration()))) << "the FIFO was not given back";
}

}  // namespace
}  // namespace cohort::client
