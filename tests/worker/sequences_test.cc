// Sequences that are recorded once and replayed, in every form of a group.
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using client::CallOptions;
using client::Group;
using client::Sequence;
using ::testing::HasSubstr;
using testing::Transport;

constexpr Reduction kSum = {ReduceOp::kSum};
constexpr int kRanks = 3;

float* Floats(const Tensor& tensor) { return static_cast<float*>(tensor.data()); }

class SequencesTest : public testing::WorkerTest, public ::testing::WithParamInterface<Transport> {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    std::vector<std::shared_ptr<client::WorkerSession>> sessions;
    for (int i = 0; i < kRanks; ++i) {
      StartWorker();
      sessions.push_back(Connect(i, GetParam()));
      ASSERT_NE(sessions.back(), nullptr);
    }
    groups_ = JoinAll(sessions, "sequences", std::vector<Transport>(kRanks, GetParam()));
    for (const auto& group : groups_) ASSERT_NE(group, nullptr);
  }

  Groups groups_;
};

// Each round sums other inputs over the ranks, so that the results show that the replay ran.
TEST_P(SequencesTest, ReplayUsesThePresentContents) {
  ExpectOk(OnRanks(groups_, [](Group& group) -> absl::Status {
    const int rank = group.rank();
    COHORT_ASSIGN_OR_RETURN(const Tensor own, group.Allocate(DataType::kF32, {2, 2}));
    COHORT_ASSIGN_OR_RETURN(const Tensor sums, group.Allocate(DataType::kF32, {2, 2}));
    COHORT_ASSIGN_OR_RETURN(const Tensor all, group.Allocate(DataType::kF32, {2, 2 * kRanks}));
    const Tensor moved = Tensor::Zeros(DataType::kF32, {1});
    std::fill_n(Floats(sums), 4, 0.F);
    COHORT_ASSIGN_OR_RETURN(
        const std::unique_ptr<Sequence> sequence,
        group.Record([&](Group& recorder) -> absl::Status {
          EXPECT_EQ(recorder.rank(), rank);
          COHORT_RETURN_IF_ERROR(recorder.AllReduce(own, sums, kSum));
          COHORT_RETURN_IF_ERROR(recorder.AllGather(sums, all, -1));
          // Only ranks 0 and 2 take part.
          if (rank == 0) COHORT_RETURN_IF_ERROR(recorder.Send(*own.Narrow(0, 0, 1), 2));
          if (rank == 2) {
            COHORT_RETURN_IF_ERROR(recorder.Receive(Tensor::Zeros(DataType::kF32, {1, 2}), 0));
          }
          COHORT_RETURN_IF_ERROR(recorder.Broadcast(moved, 1));
          return absl::OkStatus();
        }));
    EXPECT_EQ(sequence->size(), rank == 1 ? 3 : 4);
    EXPECT_EQ(Floats(sums)[0], 0) << "recording does nothing";
    for (int round = 1; round <= 5; ++round) {
      std::fill_n(Floats(own), 4, static_cast<float>(round * (rank + 1)));
      if (rank == 1) Floats(moved)[0] = static_cast<float>(round);
      COHORT_RETURN_IF_ERROR(sequence->Replay({}));
      for (int i = 0; i < 4 * kRanks; ++i) EXPECT_EQ(Floats(all)[i], 6.F * round);
      EXPECT_EQ(Floats(moved)[0], round);
    }
    return absl::OkStatus();
  }));
}

TEST_P(SequencesTest, AllRanksLearnTheNumberOfADifferingCall) {
  const Tensor four = Tensor::Zeros(DataType::kF32, {4});
  const std::vector<absl::Status> statuses = OnRanks(groups_, [&](Group& group) {
    return group
        .Record([&](Group& recorder) -> absl::Status {
          COHORT_RETURN_IF_ERROR(recorder.AllReduce(four, four, kSum));
          if (recorder.rank() == 2) return recorder.Broadcast(four, 2);
          return recorder.Broadcast(four, 1);
        })
        .status();
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("call 2 is, of rank 0, broadcast of f32 [4], root 1, and of rank 2 "
                          "broadcast of f32 [4], root 2"));
  }
  // Record ran no call, so the group still works.
  ExpectOk(OnRanks(groups_, [&](Group& group) {
    const Tensor own = Tensor::Zeros(DataType::kF32, {4});
    return group.AllReduce(own, own, kSum);
  }));
}

TEST_P(SequencesTest, UnrecordableCallsFailOnAllRanks) {
  const Tensor four = Tensor::Zeros(DataType::kF32, {4});
  const std::vector<absl::Status> statuses = OnRanks(groups_, [&](Group& group) {
    return group
        .Record([&](Group& recorder) -> absl::Status {
          COHORT_RETURN_IF_ERROR(recorder.AllReduce(four, four, kSum));
          // The body ignores the error.
          if (recorder.rank() == 1) recorder.SendObject("", 0).IgnoreError();
          return absl::OkStatus();
        })
        .status();
  });
  EXPECT_EQ(statuses[1].code(), absl::StatusCode::kFailedPrecondition) << statuses[1];
  EXPECT_THAT(std::string(statuses[1].message()), HasSubstr("SendObject cannot be recorded"));
  for (const size_t rank : {0, 2}) {
    EXPECT_EQ(statuses[rank].code(), absl::StatusCode::kInvalidArgument) << statuses[rank];
    EXPECT_THAT(std::string(statuses[rank].message()),
                HasSubstr("of rank 1 not recorded: SendObject cannot be recorded"));
  }
  ExpectOk(OnRanks(groups_, [](Group& group) {
    return group.Record([&](Group& recorder) -> absl::Status {
                  EXPECT_FALSE(recorder.Allocate(DataType::kF32, {4}).ok());
                  EXPECT_FALSE(recorder.ExchangeSizes(1).ok());
                  EXPECT_FALSE(recorder.BroadcastObject("", 0).ok());
                  return absl::CancelledError("enough");
                })
                       .status()
                       .code() == absl::StatusCode::kCancelled
               ? absl::OkStatus()
               : absl::UnknownError("not what the body said");
  }));
}

TEST_P(SequencesTest, ACallThatFailsIsNamedByItsNumber) {
  const Tensor four = Tensor::Zeros(DataType::kF32, {4});
  const Tensor three = Tensor::Zeros(DataType::kF32, {3});
  const std::vector<absl::Status> statuses = OnRanks(groups_, [&](Group& group) -> absl::Status {
    const Tensor own = Tensor::Zeros(DataType::kF32, {4});
    COHORT_ASSIGN_OR_RETURN(const auto sequence, group.Record([&](Group& recorder) -> absl::Status {
      COHORT_RETURN_IF_ERROR(recorder.AllReduce(own, own, kSum));
      return recorder.AllReduce(own, three, kSum);
    }));
    return sequence->Replay({});
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("call 2 of 2 recorded: "));
  }
}

TEST_P(SequencesTest, AnotherGenerationNeedsAnother) {
  ExpectOk(OnRanks(groups_, [](Group& group) -> absl::Status {
    const Tensor own = Tensor::Zeros(DataType::kF32, {4});
    COHORT_ASSIGN_OR_RETURN(const auto sequence, group.Record([&](Group& recorder) {
      return recorder.AllReduce(own, own, kSum);
    }));
    COHORT_RETURN_IF_ERROR(sequence->Replay({}));
    if (group.rank() == 0) group.Abort(absl::CancelledError("a new beginning"));
    COHORT_RETURN_IF_ERROR(group.Rejoin());
    const absl::Status status = sequence->Replay({});
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("record it anew"));
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Transports, SequencesTest,
                         ::testing::Values(Transport::kUnix, Transport::kRemoteTcp,
                                           Transport::kAttached),
                         [](const auto& info) {
                           return info.param == Transport::kUnix        ? "Near"
                                  : info.param == Transport::kRemoteTcp ? "Far"
                                                                        : "Own";
                         });

}  // namespace
}  // namespace cohort
