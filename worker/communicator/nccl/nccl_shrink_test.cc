// The ranks that are left of a group go on.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/abort_error.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/testing/nccl_group_test.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

using Formed = absl::StatusOr<std::unique_ptr<NcclCommunicator>>;

class NcclShrinkTest : public NcclGroupTest {
 protected:
  ~NcclShrinkTest() override { left_.clear(); }

  void FormAndConnect(int size, bool operation_log = false) {
    NcclRanksOptions options;
    options.operation_log = operation_log;
    Form(size, options);
    numbers_.assign(static_cast<size_t>(size), 1);
    RunWell([&](NcclCommunicator& group) {
      COHORT_RETURN_IF_ERROR(EnqueueSum(group, &numbers_[static_cast<size_t>(group.rank())]));
      return group.Await(Soon());
    });
  }
  // Called by the ranks that are not in `gone`, except where `differ` changes that. By rank in the
  // new group.
  std::vector<absl::Status> Shrink(
      const std::vector<int>& gone, Instant deadline = Soon(),
      const std::function<void(int, NcclRemainder&)>& differ = [](int, NcclRemainder&) {}) {
    std::vector<size_t> old_ranks;
    for (size_t r = 0; r < ranks_.size(); ++r) {
      if (std::find(gone.begin(), gone.end(), static_cast<int>(r)) == gone.end()) {
        old_ranks.push_back(r);
      }
    }
    if (hosts_.size() != old_ranks.size()) hosts_ = MakeHosts(static_cast<int>(old_ranks.size()));
    left_.clear();
    left_.resize(old_ranks.size());
    std::vector<absl::Status> statuses(old_ranks.size());
    std::vector<std::thread> threads;
    for (size_t index = 0; index < old_ranks.size(); ++index) {
      threads.emplace_back([&, index] {
        NcclRemainder remainder;
        remainder.gone = gone;
        remainder.host = hosts_[index].get();
        differ(static_cast<int>(index), remainder);
        if (remainder.host == nullptr) return;  // it does not come
        Formed formed = (*ranks_[old_ranks[index]].nccl)->Shrink(remainder, deadline);
        statuses[index] = formed.status();
        if (formed.ok()) left_[index] = *std::move(formed);
      });
    }
    for (std::thread& thread : threads) thread.join();
    return statuses;
  }
  // Expects that the new group works.
  void ExpectWorks() {
    std::vector<std::thread> threads;
    for (const auto& group : left_) {
      ASSERT_NE(group, nullptr);
      threads.emplace_back([&group, n = static_cast<float>(left_.size())] {
        float number = 1;
        absl::Status status =
            group->AllReduce(&number, &number, 1, DataType::kF32, {ReduceOp::kSum}, Soon());
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_EQ(number, n);
        status = group->Enqueue(Of(Collective::kAllReduce, 1), &number, &number, {}, Soon());
        EXPECT_TRUE(status.ok()) << status;
        status = group->Await(Soon());
        EXPECT_TRUE(status.ok()) << status;
        EXPECT_EQ(number, n * n);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  static std::vector<absl::Status> AllWell(size_t count) {
    return std::vector<absl::Status>(count);
  }

  std::vector<float> numbers_;
  std::vector<std::unique_ptr<Communicator>> hosts_;
  std::vector<std::unique_ptr<NcclCommunicator>> left_;
};

TEST_P(NcclShrinkTest, ARankDiesInTheMiddleOfAnOperationAndTheOthersGoOn) {
  for (const bool operation_log : {false, true}) {
    SCOPED_TRACE(operation_log);
    left_.clear();
    hosts_.clear();
    ranks_.clear();
    streams_.clear();
    FormAndConnect(GetParam(), operation_log);
    const int dead = size() / 2;
    // It has enqueued it, and its device never comes to it.
    cuda::StreamGate grave;
    ASSERT_EQ(grave.Close(stream(dead)), cudaSuccess);
    RunWell([&](NcclCommunicator& group) {
      return EnqueueSum(group, &numbers_[static_cast<size_t>(group.rank())]);
    });
    for (int r = 0; r < size(); ++r) {
      if (r != dead) rank(r).Abort(absl::StrCat("rank ", dead, " is gone"));
    }
    EXPECT_EQ(Shrink({dead}), AllWell(ranks_.size() - 1));
    ExpectWorks();
    for (int r = 0; r < size(); ++r) {
      if (r == dead) continue;
      EXPECT_EQ(rank(r).Check(), AbortError(absl::StrCat("rank ", dead, " is gone")));
    }
    grave.Open();
  }
}

TEST_P(NcclShrinkTest, ABrokenGroupShrinksIfOneRankKnowsIt) {
  FormAndConnect(GetParam());
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) {
    return EnqueueSum(group, &numbers_[static_cast<size_t>(group.rank())]);
  });
  const int dead = size() - 1;
  rank(0).Abort("enough");
  EXPECT_EQ(Shrink({dead}), AllWell(ranks_.size() - 1));
  ExpectWorks();
}

TEST_P(NcclShrinkTest, AGroupThatWorksFinishesFirst) {
  FormAndConnect(GetParam());
  std::vector<cuda::StreamGate> gates(ranks_.size());
  RunWell([&](NcclCommunicator& group) {
    const auto r = static_cast<size_t>(group.rank());
    EXPECT_EQ(gates[r].Close(stream(group.rank())), cudaSuccess);
    return EnqueueSum(group, &numbers_[r]);
  });
  std::thread opens([&] {
    for (cuda::StreamGate& gate : gates) gate.Open();
  });
  EXPECT_EQ(Shrink({0}), AllWell(ranks_.size() - 1));
  opens.join();
  for (size_t r = 1; r < numbers_.size(); ++r) {
    EXPECT_EQ(numbers_[r], static_cast<float>(GetParam() * GetParam()));
  }
  ExpectWorks();
  const absl::Status old = rank(1).Check();
  EXPECT_EQ(old, absl::AbortedError("the group goes on without ranks 0, as another group"));
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclShrinkTest, ::testing::Values(2, 3, 5));

TEST_F(NcclShrinkTest, RanksThatDisagreeAllFailAndCanTryAgain) {
  FormAndConnect(5);
  for (const absl::Status& status : Shrink({1, 3}, Soon(), [](int index, NcclRemainder&remainder) {
         // For each rank its own index is right.
         if (index == 2) remainder.gone = {0, 3};
       })) {
    EXPECT_EQ(status,
              absl::InvalidArgumentError(
                  "the remaining ranks disagree on the lost ranks: remaining rank 0 continues "
                  "without ranks 1,3; remaining rank 2 without ranks 0,3"));
  }
  RunWell([&](NcclCommunicator& group) {
    return EnqueueSum(group, &numbers_[static_cast<size_t>(group.rank())]);
  });
  EXPECT_EQ(Shrink({3, 1}), AllWell(3));
  ExpectWorks();
}

TEST_F(NcclShrinkTest, InvalidListsFailOnAllRanks) {
  FormAndConnect(3);
  const std::pair<std::vector<int>, const char*> lists[] = {
      {{}, "without any ranks: the list of lost ranks is empty"},
      {{0}, "without ranks 0: rank 0 itself is among them"},
      {{3}, "without ranks 3: there are no such ranks in a group of 3"},
      {{-1}, "without any ranks: there are no such ranks in a group of 3"},
      {{1, 2}, "without ranks 1-2: rank 0 is to be rank 0 of 1, and comes as rank 0 of 2"},
  };
  for (const auto& [gone, text] : lists) {
    for (const absl::Status& status :
         Shrink({2}, Soon(), [&list = gone](int index, NcclRemainder&remainder) {
           if (index == 0) remainder.gone = list;
         })) {
      EXPECT_EQ(status,
                absl::InvalidArgumentError(absl::StrCat("remaining rank 0 continues ", text)));
    }
  }
  EXPECT_EQ(Shrink({2}), AllWell(2));
  ExpectWorks();
}

TEST_F(NcclShrinkTest, AFailureOnOneRankFailsAllInTimeAndTheyCanFormAgain) {
  FormAndConnect(5);
  rank(0).Abort("enough");
  nccl_->FailNext("ncclCommShrink", ncclSystemError, 3);
  const Instant begin = Clock::Steady().Now();
  for (const absl::Status& status : Shrink({1})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("remaining rank 2: ncclCommShrink failed"));
  }
  EXPECT_LT(Clock::Steady().Now() - begin, absl::Seconds(20));
  ranks_.clear();
  const absl::StatusOr<std::string> id = NewNcclId(*nccl_);
  ASSERT_TRUE(id.ok());
  std::vector<std::thread> threads;
  for (size_t index = 0; index < hosts_.size(); ++index) {
    threads.emplace_back([&, index] {
      NcclCommunicatorInit init;
      init.nccl = nccl_;
      init.device = static_cast<int>(index);
      init.compute_capability = kFakeComputeCapability;
      init.ids = {*id};
      init.host = hosts_[index].get();
      Formed formed = NcclCommunicator::Form(std::move(init), Soon());
      ASSERT_TRUE(formed.ok()) << formed.status();
      left_[index] = *std::move(formed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  ExpectWorks();
}

TEST_F(NcclShrinkTest, ARankThatDoesNotComeIsNamed) {
  FormAndConnect(3);
  rank(0).Abort("enough");
  const std::vector<absl::Status> statuses =
      Shrink({1}, In(absl::Milliseconds(200)), [](int index, NcclRemainder& remainder) {
        if (index == 1) remainder.host = nullptr;
      });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("1"));
}

TEST_F(NcclShrinkTest, AnotherGroupsCallThatDoesNotReturnIsNamed) {
  FormAndConnect(3);
  NcclRanks others = FormNcclRanks(nccl_, 1, Soon());
  nccl_->BlockNext("ncclBroadcast", absl::Seconds(30), 0);
  float number = 1;
  std::thread blocks([&] {
    const absl::Status status =
        (*others[0].nccl)->Broadcast(&number, &number, 1, DataType::kF32, 0, Soon());
    EXPECT_TRUE(status.ok()) << status;
  });
  EXPECT_TRUE(Eventually([&] { return nccl_->functions(0).back() == "ncclBroadcast"; }));
  // A loaded machine takes its time to start the threads that wait for the device lock.
  // Meanwhile the watchdog may revoke the old communicator without the lock, as a last resort.
  misuse_ = "at the same time on device 0";
  for (const absl::Status& status : Shrink({1}, In(absl::Seconds(4)))) {
    EXPECT_EQ(status, absl::DeadlineExceededError(
                          "remaining rank 0: another group's call of NCCL on device 0 "
                          "does not return"));
  }
  nccl_->Release();
  blocks.join();
}

TEST_F(NcclShrinkTest, AGroupShrinksRepeatedly) {
  FormAndConnect(5);
  for (int n = 5; n > 1; --n) {
    rank(0).Abort("enough");
    EXPECT_EQ(Shrink({n - 1}), AllWell(static_cast<size_t>(n - 1)));
    ExpectWorks();
    NcclRanks next(left_.size());
    for (size_t r = 0; r < next.size(); ++r) {
      next[r].host = std::move(hosts_[r]);
      next[r].nccl = std::move(left_[r]);
    }
    left_.clear();
    hosts_.clear();
    ranks_ = std::move(next);
  }
}

}  // namespace
}  // namespace cohort::worker
