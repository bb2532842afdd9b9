// Ranks that call different operations, by their NcclAgreement.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/mismatch.h"
#include "worker/communicator/nccl/testing/nccl_group_test.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class NcclAgreementTest : public NcclGroupTest {
 protected:
  void FormAndConnect(int size, NcclAgreement agreement, bool operation_log) {
    NcclRanksOptions options;
    options.agreement = agreement;
    options.operation_log = operation_log;
    options.differ = [this](int rank, NcclCommunicatorInit& init) {
      if (rank == 0) operation_log_ = init.operation_log;
    };
    Form(size, options);
    numbers_.assign(static_cast<size_t>(size), std::vector<float>(4, 1));
    RunWell([&](NcclCommunicator& group) {
      COHORT_RETURN_IF_ERROR(Enqueue(group, 1));
      return group.Await(Soon());
    });
  }
  absl::Status Enqueue(NcclCommunicator& group, int64_t count,
                       absl::Duration timeout = absl::Seconds(60)) {
    float* const data = numbers_[static_cast<size_t>(group.rank())].data();
    return group.Enqueue(Of(Collective::kAllReduce, count), data, data, On(group, timeout), Soon());
  }
  absl::Status Sum(NcclCommunicator& group, int64_t count, Instant deadline = Soon()) {
    float* const data = numbers_[static_cast<size_t>(group.rank())].data();
    return group.AllReduce(data, data, count, DataType::kF32, {ReduceOp::kSum}, deadline);
  }
  // The last rank brings more than the others.
  int64_t CountOf(const NcclCommunicator& group) const {
    return group.rank() == size() - 1 ? 4 : 1;
  }
  void ExpectAllEnded(absl::StatusCode code, const ::testing::Matcher<std::string>& cause) {
    for (const absl::Status& status : Run([&](NcclCommunicator& group) {
           EXPECT_TRUE(Eventually([&] { return !group.Check().ok(); }));
           return Enqueue(group, 1);
         })) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_THAT(std::string(status.message()), cause);
      EXPECT_FALSE(IsMismatch(status)) << "the group does not work on";
    }
  }
  bool IsIdle(int rank) {
    const absl::StatusOr<bool> idle = cuda::IsIdle(stream(rank));
    return idle.ok() && *idle;
  }
  std::string Differing() const {
    return absl::StrCat(
        "ranks called different things as operation 2: rank 0 all_reduce of 1 f32 by ",
        "sum on a stream; rank ", size() - 1, " all_reduce of 4 f32 by sum on a stream");
  }

  std::shared_ptr<const NcclOperationLog> operation_log_;
  std::vector<std::vector<float>> numbers_;
};

TEST_P(NcclAgreementTest, ByTheOperationLogADifferenceOnStreamsIsFoundWhileItHangs) {
  FormAndConnect(GetParam(), NcclAgreement::kAsync, true);
  misuse_ = "ranks called different things";
  // The last to enqueue may be told at once.
  Run([&](NcclCommunicator& group) { return Enqueue(group, CountOf(group)); });
  for (int r = 0; r < size(); ++r) {
    EXPECT_TRUE(Eventually([&] { return IsIdle(r); })) << "no rank calls anything";
  }
  // The rank that finds the difference compares itself with one other.
  ExpectAllEnded(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr("as operation 2: rank "), HasSubstr("all_reduce of 1 f32 by sum"),
                       HasSubstr("all_reduce of 4 f32 by sum"), HasSubstr("formed anew")));
}

TEST_P(NcclAgreementTest, ByTheOperationLogADifferenceIsFoundThatDevicesDoNotNotice) {
  FormAndConnect(GetParam(), NcclAgreement::kAsync, true);
  // To NCCL they are the same.
  Run([&](NcclCommunicator& group) {
    FlatCall operation = Of(Collective::kAllReduce, 1);
    operation.tag = group.rank() == 0 ? 1 : 2;
    float* const data = numbers_[static_cast<size_t>(group.rank())].data();
    return group.Enqueue(operation, data, data, On(group), Soon());
  });
  ExpectAllEnded(absl::StatusCode::kInvalidArgument, HasSubstr(", of another tag"));
}

TEST_P(NcclAgreementTest, WithoutAnOperationLogTheNextBarrierFindsTheDifference) {
  FormAndConnect(GetParam(), NcclAgreement::kAsync, false);
  misuse_ = "ranks called different things";
  RunWell([&](NcclCommunicator& group) { return Enqueue(group, CountOf(group)); });
  for (const absl::Status& status : Run([&](NcclCommunicator& group) { return Sum(group, 1); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(Differing()));
  }
  ExpectAllEnded(absl::StatusCode::kInvalidArgument, HasSubstr(Differing()));
}

TEST_P(NcclAgreementTest, WithoutAnOperationLogTheNextBarrierFindsWhatOneLacks) {
  FormAndConnect(GetParam(), NcclAgreement::kAsync, false);
  RunWell([&](NcclCommunicator& group) {
    return group.rank() == size() - 1 ? absl::OkStatus() : Enqueue(group, 1);
  });
  for (const absl::Status& status :
       Run([&](NcclCommunicator& group) { return group.Barrier(Soon()); })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("rank ", size() - 1, " nothing")));
  }
}

TEST_P(NcclAgreementTest, StrictlyADifferenceOnStreamsIsFoundBeforeAnythingIsEnqueued) {
  FormAndConnect(GetParam(), NcclAgreement::kStrict, false);
  for (const absl::Status& status :
       Run([&](NcclCommunicator& group) { return Enqueue(group, CountOf(group)); })) {
    EXPECT_TRUE(IsMismatch(status)) << status;
  }
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(Enqueue(group, 1));
    COHORT_RETURN_IF_ERROR(Sum(group, 1));
    return group.Await(Soon());
  });
}

TEST_P(NcclAgreementTest, OperationsThatBlockHaveABarrierAndWorkOn) {
  for (const bool operation_log : {false, true}) {
    SCOPED_TRACE(operation_log);
    streams_.clear();
    ranks_.clear();
    FormAndConnect(GetParam(), NcclAgreement::kAsync, operation_log);
    for (const absl::Status& status :
         Run([&](NcclCommunicator& group) { return Sum(group, CountOf(group)); })) {
      EXPECT_TRUE(IsMismatch(status)) << status;
    }
    RunWell([&](NcclCommunicator& group) {
      COHORT_RETURN_IF_ERROR(Enqueue(group, 1));
      COHORT_RETURN_IF_ERROR(Sum(group, 1));
      COHORT_RETURN_IF_ERROR(Enqueue(group, 1));
      COHORT_RETURN_IF_ERROR(group.Await(Soon()));
      return group.Check();
    });
  }
}

TEST_P(NcclAgreementTest, WithTheModeOffThereIsNoBarrierAndAllWorks) {
  FormAndConnect(GetParam(), NcclAgreement::kOff, true);
  const int n = GetParam();
  RunWell([&](NcclCommunicator& group) {
    COHORT_RETURN_IF_ERROR(Sum(group, 0));
    COHORT_RETURN_IF_ERROR(Sum(group, 2));
    auto mine = static_cast<float>(group.rank());
    float theirs = -1;
    const int last = (group.rank() + n - 1) % n;
    const Transfer transfers[] = {Transfer::Send((group.rank() + 1) % n, &mine, 1, DataType::kF32),
                                  Transfer::Receive(last, &theirs, 1, DataType::kF32)};
    COHORT_RETURN_IF_ERROR(group.Exchange(transfers, Soon()));
    EXPECT_EQ(theirs, static_cast<float>(last));
    COHORT_RETURN_IF_ERROR(Enqueue(group, 1));
    COHORT_RETURN_IF_ERROR(group.Barrier(Soon()));
    return group.Await(Soon());
  });
  for (const absl::Status& status : Run([&](NcclCommunicator& group) {
         return group.rank() == 0 ? absl::OkStatus() : Sum(group, 1, In(absl::Milliseconds(50)));
       })) {
    if (status.ok()) continue;
    EXPECT_THAT(
        std::string(status.message()),
        AllOf(HasSubstr("(operation 5): the devices do not finish; not come to it: ranks 0"),
              HasSubstr(", rank 0 has come to operation 4 and no further")));
  }
}

TEST_P(NcclAgreementTest, TheOperationLogNamesMissingRanks) {
  FormAndConnect(GetParam(), NcclAgreement::kAsync, true);
  RunWell([&](NcclCommunicator& group) {
    const bool comes = group.rank() < size() - 1;
    return comes ? Enqueue(group, 1, absl::Milliseconds(50)) : absl::OkStatus();
  });
  const int absent = size() - 1;
  ExpectAllEnded(absl::StatusCode::kAborted,
                 AllOf(HasSubstr("all_reduce of 1 f32 by sum (operation 2): it has run for "),
                       HasSubstr(absl::StrCat("; not come to it: ranks ", absent, ", rank ", absent,
                                              " has come to operation 1 and no further: "
                                              "all_reduce of 1 f32 by sum on a stream"))));
}

TEST_P(NcclAgreementTest, ByTheOperationLogOneThatGivesUpFreesTheStreamsOfAll) {
  FormAndConnect(GetParam(), NcclAgreement::kAsync, true);
  nccl_->HangNext();
  RunWell([&](NcclCommunicator& group) {
    return Enqueue(group, 1, group.rank() == 0 ? absl::Milliseconds(50) : absl::Seconds(60));
  });
  for (int r = 0; r < size(); ++r) {
    EXPECT_TRUE(Eventually([&] { return IsIdle(r); })) << "no rank calls anything";
  }
  ExpectAllEnded(absl::StatusCode::kAborted, HasSubstr("rank 0 gave up: all_reduce of 1 f32"));
}

INSTANTIATE_TEST_SUITE_P(Worlds, NcclAgreementTest, ::testing::Values(2, 3, 5));

TEST_F(NcclAgreementTest, TheOperationLogDistinguishesRanksThatHaveNotBegun) {
  FormAndConnect(3, NcclAgreement::kAsync, true);
  cuda::StreamGate own, other;
  ASSERT_EQ(own.Close(stream(0)), cudaSuccess);
  ASSERT_EQ(other.Close(stream(1)), cudaSuccess);
  RunWell([&](NcclCommunicator& group) {
    return Enqueue(group, 1, group.rank() == 0 ? absl::Milliseconds(50) : absl::Seconds(60));
  });
  EXPECT_TRUE(Eventually([&] { return operation_log_->progress(2).started == 2; }));
  own.Open();
  EXPECT_TRUE(Eventually([&] { return !rank(0).Check().ok(); }));
  other.Open();
  ExpectAllEnded(absl::StatusCode::kAborted,
                 AllOf(HasSubstr("; not begun on their devices: ranks 1; not finished: ranks 2"),
                       Not(HasSubstr("not come"))));
}

TEST_F(NcclAgreementTest, StrictlyMessagesAreCompared) {
  FormAndConnect(2, NcclAgreement::kStrict, false);
  float sent[2] = {1, 2}, received[2] = {0, 0};
  for (const absl::Status& status : Run([&](NcclCommunicator& group) {
         const Transfer transfers[] = {
             group.rank() == 0 ? Transfer::Send(1, &sent[0], 1, DataType::kF32)
                               : Transfer::Receive(0, &received[0], 1, DataType::kI32),
             group.rank() == 0 ? Transfer::Send(1, &sent[1], 1, DataType::kF32)
                               : Transfer::Receive(0, &received[1], 1, DataType::kF32)};
         const absl::Status status = group.Enqueue(transfers, On(group), Soon());
         COHORT_RETURN_IF_ERROR(group.Await(Soon()));
         return status;
       })) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  EXPECT_EQ(received[0], 0);
  EXPECT_EQ(received[1], 2);
}

// More control messages than there is room for between two ranks.
TEST_F(NcclAgreementTest, ManyMessagesBothWays) {
  constexpr size_t kMessages = 100;
  FormAndConnect(2, NcclAgreement::kAsync, false);
  RunWell([&](NcclCommunicator& group) -> absl::Status {
    const int other = 1 - group.rank();
    std::vector<float> sent(kMessages), received(kMessages);
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < kMessages; ++i) {
      sent[i] = static_cast<float>(1000 * group.rank()) + static_cast<float>(i);
      transfers.push_back(Transfer::Send(other, &sent[i], 1, DataType::kF32));
    }
    for (float& one : received) {
      transfers.push_back(Transfer::Receive(other, &one, 1, DataType::kF32));
    }
    COHORT_RETURN_IF_ERROR(group.Exchange(transfers, Soon()));
    for (size_t i = 0; i < kMessages; ++i) {
      EXPECT_EQ(received[i], static_cast<float>(1000 * other) + static_cast<float>(i));
    }
    return absl::OkStatus();
  });
}

TEST_F(NcclAgreementTest, ManyMessagesAroundARing) {
  constexpr size_t kMessages = 100;
  FormAndConnect(3, NcclAgreement::kAsync, false);
  RunWell([&](NcclCommunicator& group) -> absl::Status {
    const int next = (group.rank() + 1) % 3;
    const int previous = (group.rank() + 2) % 3;
    std::vector<float> sent(kMessages, static_cast<float>(group.rank())), received(kMessages);
    std::vector<Transfer> transfers;
    for (float& one : sent) transfers.push_back(Transfer::Send(next, &one, 1, DataType::kF32));
    for (float& one : received) {
      transfers.push_back(Transfer::Receive(previous, &one, 1, DataType::kF32));
    }
    COHORT_RETURN_IF_ERROR(group.Exchange(transfers, Soon()));
    EXPECT_EQ(received, std::vector<float>(kMessages, static_cast<float>(previous)));
    return absl::OkStatus();
  });
}

TEST_F(NcclAgreementTest, RanksThatAreToAgreeDifferentlyDoNotForm) {
  NcclRanksOptions options;
  options.differ = [](int rank, NcclCommunicatorInit& init) {
    if (rank == 1) init.agreement = NcclAgreement::kOff;
  };
  for (const NcclRank& rank : FormNcclRanks(nccl_, 2, Soon(), options)) {
    EXPECT_EQ(
        rank.nccl.status(),
        absl::InvalidArgumentError("ranks form different groups: rank 0 kAsync, no operation log; "
                                   "rank 1 kOff, no operation log"));
  }
}

}  // namespace
}  // namespace cohort::worker
