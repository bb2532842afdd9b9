#include "worker/communicator/nccl/watchdog/nccl_watchdog.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "base/abort_error.h"
#include "base/status_macros.h"
#include "base/testing/no_new_threads.h"
#include "worker/communicator/nccl/testing/nccl_group_test.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class NcclWatchdogTest : public NcclGroupTest {
 protected:
  // Forms and connects the group, so that the next operation is on the device when Enqueue returns.
  void FormAndConnect(int size, const NcclRanksOptions& options = {}) {
    Form(size, options);
    numbers_.assign(static_cast<size_t>(size), 1);
    RunWell([&](NcclCommunicator& group) {
      COHORT_RETURN_IF_ERROR(EnqueueSum(group, &number(group)));
      return group.Await(Soon());
    });
  }
  float& number(const NcclCommunicator& group) {
    return numbers_[static_cast<size_t>(group.rank())];
  }
  void ExpectAllEnded(const ::testing::Matcher<std::string>& cause) {
    for (const absl::Status& status : Run([&](NcclCommunicator& group) {
           EXPECT_TRUE(Eventually([&] { return !group.Check().ok(); }));
           return EnqueueSum(group, &number(group));
         })) {
      EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
      EXPECT_THAT(std::string(status.message()), cause);
    }
  }
  // Waits until the watchdog has seen rank 0's error. No rank gets an error before that.
  void InjectAndAwaitThatItIsSeen() {
    const auto asked = [&] {
      const std::vector<std::string> all = nccl_->functions(0);
      return std::count(all.begin(), all.end(), "ncclCommGetAsyncError");
    };
    const auto before = asked();
    nccl_->InjectAsyncError(0, ncclRemoteError);
    EXPECT_TRUE(Eventually([&] { return asked() > before || !rank(0).Check().ok(); }));
  }
  bool IsIdle(int rank) {
    const absl::StatusOr<bool> idle = cuda::IsIdle(stream(rank));
    return idle.ok() && *idle;
  }

  std::vector<float> numbers_;
};

struct CountingWatched final : NcclWatchdog::Watched {
  bool Look() override {
    ++looks;
    return in_flight;
  }
  std::atomic<int> looks{0};
  std::atomic<bool> in_flight{false};
};

TEST_F(NcclWatchdogTest, LooksAtThoseInFlightAloneAndEndsWithTheLast) {
  NcclWatchdog watchdog;
  EXPECT_FALSE(watchdog.runs());
  CountingWatched idle, busy;
  busy.in_flight = true;
  ASSERT_EQ(watchdog.Enlist(&idle), absl::OkStatus());
  ASSERT_EQ(watchdog.Enlist(&busy), absl::OkStatus());
  watchdog.Watch(&idle);
  EXPECT_TRUE(watchdog.runs());
  EXPECT_TRUE(Eventually([&] { return idle.looks == 1; }));
  watchdog.Watch(&busy);
  EXPECT_TRUE(Eventually([&] { return busy.looks == 5; }));
  EXPECT_EQ(idle.looks, 1);
  watchdog.Watch(&idle);
  EXPECT_TRUE(Eventually([&] { return idle.looks == 2; }));
  watchdog.Forget(&busy);
  const int looks = busy.looks;
  watchdog.Watch(&idle);
  EXPECT_TRUE(Eventually([&] { return idle.looks == 3; }));
  EXPECT_EQ(busy.looks, looks);
  EXPECT_TRUE(watchdog.runs());
  watchdog.Forget(&idle);
  EXPECT_FALSE(watchdog.runs());
  watchdog.Forget(&idle);
  ASSERT_EQ(watchdog.Enlist(&idle), absl::OkStatus());
  watchdog.Watch(&idle);
  EXPECT_TRUE(Eventually([&] { return idle.looks == 4; })) << "another thread";
}

// A look that begins, and ends when the test lets it go.
struct HeldWatched final : NcclWatchdog::Watched {
  bool Look() override {
    if (!begun.HasBeenNotified()) begun.Notify();
    let_go.WaitForNotificationWithTimeout(absl::Seconds(60));
    return true;
  }
  absl::Notification begun;
  absl::Notification let_go;
};

TEST_F(NcclWatchdogTest, ForgetWaitsForTheLookThatIsInIt) {
  for (const bool is_last : {true, false}) {
    SCOPED_TRACE(is_last ? "the last one" : "one of two");
    NcclWatchdog watchdog;
    CountingWatched other;
    HeldWatched held;
    ASSERT_EQ(watchdog.Enlist(&held), absl::OkStatus());
    if (!is_last) {
      ASSERT_EQ(watchdog.Enlist(&other), absl::OkStatus());
    }
    watchdog.Watch(&held);
    ASSERT_TRUE(held.begun.WaitForNotificationWithTimeout(absl::Seconds(60))) << "no look began";
    absl::Notification forgotten;
    std::thread forgets([&] {
      watchdog.Forget(&held);
      forgotten.Notify();
    });
    // Long enough for a Forget that does not wait.
    EXPECT_FALSE(forgotten.WaitForNotificationWithTimeout(absl::Milliseconds(100)))
        << "Forget returned while the watchdog was in Look: the object would be destroyed under it";
    held.let_go.Notify();
    EXPECT_TRUE(forgotten.WaitForNotificationWithTimeout(absl::Seconds(60)))
        << "Forget still waits, though the look has ended";
    forgets.join();
    watchdog.Forget(&other);
  }
}

TEST_F(NcclWatchdogTest, WithoutAThreadEnlistingFailsAndMayBeTriedAgain) {
  NcclWatchdog watchdog;
  CountingWatched watched;
  {
    const cohort::testing::NoNewThreads refuse;
    const absl::Status status = watchdog.Enlist(&watched);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("cohort-nccl-dog"));
    EXPECT_FALSE(watchdog.runs());
  }
  ASSERT_EQ(watchdog.Enlist(&watched), absl::OkStatus());
  watchdog.Watch(&watched);
  EXPECT_TRUE(Eventually([&] { return watched.looks > 0; }));
  watchdog.Forget(&watched);
}

// The operation is not on the device then, and no other rank was told of it.
TEST_F(NcclWatchdogTest, WithoutAThreadAnOperationOnAStreamIsRefusedToItsCallerAlone) {
  Form(1);
  float one = 1;
  {
    const cohort::testing::NoNewThreads refuse;
    for (const int64_t count : {1, 0}) {
      const absl::Status status =
          rank(0).Enqueue(Of(Collective::kAllReduce, count), &one, &one, On(rank(0)), Soon());
      EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr("cohort-nccl-dog"));
    }
  }
  EXPECT_THAT(nccl_->functions(0), ::testing::Not(::testing::Contains("ncclAllReduce")));
  EXPECT_EQ(EnqueueSum(rank(0), &one), absl::OkStatus());
  EXPECT_EQ(rank(0).Await(Soon()), absl::OkStatus());
}

TEST_F(NcclWatchdogTest, ThereIsNoThreadButForOperationsOnStreams) {
  Form(2);
  RunWell([](NcclCommunicator& group) {
    float one = 1;
    return group.AllReduce(&one, &one, 1, DataType::kF32, {ReduceOp::kSum}, Soon());
  });
  EXPECT_FALSE(NcclWatchdog::OfProcess().runs());
  RunWell([&](NcclCommunicator& group) {
    float one = 1;
    COHORT_RETURN_IF_ERROR(EnqueueSum(group, &one));
    return group.Await(Soon());
  });
  EXPECT_TRUE(NcclWatchdog::OfProcess().runs());
  ranks_.clear();
  EXPECT_FALSE(NcclWatchdog::OfProcess().runs());
}

TEST_P(NcclWatchdogTest, AnOperationThatRunsTooLongEndsTheGroupAndIsNamed) {
  FormAndConnect(GetParam());
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) {
    const bool is_last = group.rank() == size() - 1;
    return EnqueueSum(group, &number(group), is_last ? absl::Milliseconds(50) : absl::Seconds(60));
  });
  // No rank makes a call.
  EXPECT_TRUE(Eventually([&] { return IsIdle(size() - 1); }));
  ExpectAllEnded(AllOf(HasSubstr(absl::StrCat("rank ", size() - 1, " gave up: ")),
                       HasSubstr("all_reduce of 1 f32 by sum (operation 2): it has run for ")));
}

TEST_P(NcclWatchdogTest, AnAbortFromElsewhereFreesTheStreams) {
  FormAndConnect(GetParam());
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) { return EnqueueSum(group, &number(group)); });
  for (int r = 0; r < size(); ++r) rank(r).Abort("rank 7 is gone");
  for (int r = 0; r < size(); ++r) {
    EXPECT_TRUE(Eventually([&] { return IsIdle(r); })) << r;
  }
  ExpectAllEnded("rank 7 is gone");
}

TEST_P(NcclWatchdogTest, ErrorsOfNcclEndTheGroupAndAreNamed) {
  FormAndConnect(GetParam());
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) { return EnqueueSum(group, &number(group)); });
  nccl_->InjectAsyncError(0, ncclRemoteError);
  EXPECT_TRUE(Eventually([&] { return IsIdle(0); }));
  ExpectAllEnded(AllOf(HasSubstr("(operation 2)"), HasSubstr("ncclRemoteError")));
}

// NCCL sees the closed connection of a rank that is gone before any rank knows whose it is.
TEST_F(NcclWatchdogTest, ErrorsOfNcclWaitAMomentForTheName) {
  for (const bool operation_log : {false, true}) {
    ranks_.clear();
    streams_.clear();
    NcclRanksOptions options;
    options.operation_log = operation_log;
    FormAndConnect(3, options);
    nccl_->HangNext();
    RunWell([&](NcclCommunicator& group) { return EnqueueSum(group, &number(group)); });
    InjectAndAwaitThatItIsSeen();
    ExpectAllEnded(HasSubstr("ncclRemoteError"));

    ranks_.clear();
    streams_.clear();
    FormAndConnect(3, options);
    nccl_->HangNext();
    RunWell([&](NcclCommunicator& group) { return EnqueueSum(group, &number(group)); });
    InjectAndAwaitThatItIsSeen();
    // With an operation log it is enough that one rank knows.
    for (int r = operation_log ? 1 : 0; r < 2; ++r)
      rank(r).Abort("rank 2 is gone: its process 47 ended");
    const absl::Status status = rank(0).Await(Soon());
    EXPECT_EQ(status, AbortError("rank 2 is gone: its process 47 ended"));
    for (int r = 0; r < 2; ++r) {
      EXPECT_TRUE(Eventually([&] { return IsIdle(r); })) << r;
    }
    rank(2).Abort("it is killed");
  }
}

// An error that was seen stays, even if the device finishes afterwards.
TEST_F(NcclWatchdogTest, AnErrorStaysWhenTheDeviceFinishesAfterwards) {
  FormAndConnect(3);
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) { return EnqueueSum(group, &number(group)); });
  InjectAndAwaitThatItIsSeen();
  nccl_->StopAll();
  EXPECT_TRUE(Eventually([&] { return IsIdle(0); }));
  const absl::Status status = rank(0).Await(Soon());
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("ncclRemoteError"));
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclWatchdogTest, ::testing::Values(1, 2, 3, 5));

// Two groups are on a device: the group that runs is late. The other, which waits for longer than
// it may run, is not.
TEST_F(NcclWatchdogTest, TimeSpentBehindOtherWorkDoesNotCount) {
  FormAndConnect(1);
  NcclRanks others = FormNcclRanks(nccl_, 1, Soon());
  NcclCommunicator& other = **others[0].nccl;
  absl::StatusOr<cuda::Stream> hangs = cuda::Stream::Create(0);
  ASSERT_TRUE(hangs.ok());
  cuda::StreamGate gate;
  ASSERT_EQ(gate.Close(stream(0)), cudaSuccess);
  ASSERT_EQ(EnqueueSum(rank(0), &numbers_[0], absl::Milliseconds(50)), absl::OkStatus());
  nccl_->HangNext();
  float number = 1;
  ASSERT_EQ(other.Enqueue(Of(Collective::kAllReduce, 1), &number, &number,
                          {hangs->get(), absl::Milliseconds(100)}, Soon()),
            absl::OkStatus());
  EXPECT_TRUE(Eventually([&] { return !other.Check().ok(); }));
  EXPECT_EQ(rank(0).Check(), absl::OkStatus());
  gate.Open();
  EXPECT_EQ(rank(0).Await(Soon()), absl::OkStatus());
}

// It is taken out of NCCL's hands, but not out of the watchdog's.
TEST_F(NcclWatchdogTest, ARevokeThatBlocksDoesNotKeepItFromOtherGroups) {
  FormAndConnect(2);
  NcclRanks others = FormNcclRanks(nccl_, 1, Soon());
  NcclCommunicator& other = **others[0].nccl;
  nccl_->BlockNext("ncclCommRevoke", absl::Seconds(30), 1);
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) {
    return EnqueueSum(group, &number(group), absl::Milliseconds(20));
  });
  nccl_->HangNext();
  float number = 1;
  ASSERT_EQ(other.Enqueue(Of(Collective::kAllReduce, 1), &number, &number,
                          {stream(0), absl::Milliseconds(20)}, Soon()),
            absl::OkStatus());
  const Instant begin = Clock::Steady().Now();
  EXPECT_TRUE(Eventually([&] { return !other.Check().ok(); }));
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(20));
  nccl_->Release();
}

}  // namespace
}  // namespace cohort::worker
