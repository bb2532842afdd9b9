// The reports of the devices' progress.
#include <map>
#include <optional>
#include <vector>

#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "worker/communicator/device_progress.h"
#include "worker/communicator/nccl/testing/nccl_group_test.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker {
namespace {

struct Reported {
  std::optional<Instant> begun;  // as told first
  std::optional<Instant> began;
  std::optional<Instant> ended;
  std::optional<absl::StatusCode> given_up;
};

// Each piece of work as a call of its own, from 1.
class RecordedProgress final : public DeviceProgress {
 public:
  int64_t Put() override {
    MutexLock lock(&mutex_);
    reported_.emplace_back();
    return static_cast<int64_t>(reported_.size());
  }
  void Begun(int64_t call, Instant at) override {
    MutexLock lock(&mutex_);
    Of(call).begun = at;
  }
  void Done(int64_t call, Instant began, Instant ended) override {
    MutexLock lock(&mutex_);
    Of(call).began = began;
    Of(call).ended = ended;
  }
  void GivenUp(int64_t call, absl::StatusCode why, Instant at) override {
    MutexLock lock(&mutex_);
    Of(call).given_up = why;
    Of(call).ended = at;
  }
  std::vector<Reported> reported() const {
    MutexLock lock(&mutex_);
    return reported_;
  }

 private:
  Reported& Of(int64_t call) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return reported_[static_cast<size_t>(call) - 1];
  }

  mutable Mutex mutex_;
  std::vector<Reported> reported_ ABSL_GUARDED_BY(mutex_);
};

class NcclProgressTest : public NcclGroupTest {
 protected:
  // Well until now: connected, and idle.
  void FormAndConnect(int size) {
    NcclRanksOptions options;
    options.differ = [&](int rank, NcclCommunicatorInit& init) {
      init.progress = &progress_[static_cast<size_t>(rank)];
    };
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
  std::vector<Reported> reported(int rank) const {
    return progress_[static_cast<size_t>(rank)].reported();
  }

  std::vector<RecordedProgress> progress_{kMostRanks};
  std::vector<float> numbers_;
};

TEST_F(NcclProgressTest, FinishedOperationsHaveTimesInTheirOrder) {
  FormAndConnect(2);
  const Instant before = Clock::Steady().Now();
  RunWell([&](NcclCommunicator& group) {
    for (int i = 0; i < 3; ++i) COHORT_RETURN_IF_ERROR(EnqueueSum(group, &number(group)));
    COHORT_RETURN_IF_ERROR(group.Await(Soon()));
    float one = 1;
    return group.AllReduce(&one, &one, 1, DataType::kF32, {ReduceOp::kSum}, Soon());
  });
  const Instant after = Clock::Steady().Now();
  for (int rank = 0; rank < size(); ++rank) {
    const std::vector<Reported> reported = this->reported(rank);
    ASSERT_EQ(reported.size(), 5u);
    Instant last = before;
    for (size_t at = 1; at < reported.size(); ++at) {
      ASSERT_TRUE(reported[at].begun.has_value() && reported[at].began.has_value()) << at;
      EXPECT_FALSE(reported[at].given_up.has_value()) << at;
      EXPECT_GT(*reported[at].ended - *reported[at].began, absl::ZeroDuration()) << at;
      EXPECT_GE(*reported[at].began, before) << at;
      EXPECT_GE(*reported[at].ended, last) << at;
      EXPECT_LE(*reported[at].ended, after) << at;
      last = *reported[at].ended;
    }
  }
}

TEST_F(NcclProgressTest, AnOperationBehindAnotherHasNotBegun) {
  FormAndConnect(1);
  cuda::StreamGate gate;
  ASSERT_EQ(gate.Close(stream(0)), cudaSuccess);
  ASSERT_EQ(EnqueueSum(rank(0), &numbers_[0]), absl::OkStatus());
  const Instant enqueued = Clock::Steady().Now();
  EXPECT_EQ(rank(0).Check(), absl::OkStatus());
  EXPECT_FALSE(reported(0)[1].begun.has_value());
  const Instant opened = Clock::Steady().Now();
  gate.Open();
  EXPECT_EQ(rank(0).Await(Soon()), absl::OkStatus());
  ASSERT_TRUE(reported(0)[1].began.has_value());
  EXPECT_GE(*reported(0)[1].began, enqueued);
  EXPECT_GE(*reported(0)[1].ended, opened);
}

// It is seen to run; when its time is over it has ended, too.
TEST_F(NcclProgressTest, AHangingOperationHasBegunAndEndsWhenItIsGivenUp) {
  FormAndConnect(2);
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) { return EnqueueSum(group, &number(group)); });
  for (int r = 0; r < size(); ++r) {
    EXPECT_TRUE(Eventually([&] { return reported(r)[1].begun.has_value(); }));
    EXPECT_FALSE(reported(r)[1].ended.has_value());
  }
  for (int r = 0; r < size(); ++r) rank(r).Abort("rank 7 is gone");
  for (int r = 0; r < size(); ++r) {
    EXPECT_TRUE(Eventually([&] { return reported(r)[1].ended.has_value(); }));
    EXPECT_EQ(reported(r)[1].given_up, absl::StatusCode::kAborted);
    EXPECT_GE(*reported(r)[1].ended, *reported(r)[1].begun);
  }
}

TEST_F(NcclProgressTest, ACallThatBlocksIsGivenUpAtItsDeadline) {
  FormAndConnect(2);
  nccl_->HangNext();
  for (const absl::Status& status : Run([](NcclCommunicator& group) {
         float one = 1;
         return group.AllReduce(&one, &one, 1, DataType::kF32, {ReduceOp::kSum},
                                In(absl::Milliseconds(100)));
       })) {
    EXPECT_FALSE(status.ok());
  }
  for (int r = 0; r < size(); ++r) {
    ASSERT_EQ(reported(r).size(), 2u);
    EXPECT_TRUE(reported(r)[1].begun.has_value());
    EXPECT_TRUE(reported(r)[1].given_up.has_value());
  }
}

TEST_F(NcclProgressTest, AnOperationInFlightAtTheEndHasAnEnd) {
  FormAndConnect(1);
  nccl_->HangNext();
  ASSERT_EQ(EnqueueSum(rank(0), &numbers_[0]), absl::OkStatus());
  ranks_.clear();
  EXPECT_TRUE(reported(0)[1].ended.has_value());
}

}  // namespace
}  // namespace cohort::worker
