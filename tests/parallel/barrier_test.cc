// Tests of Group::Barrier, in every form of a group.
#include <algorithm>
#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/rendezvous/report/report.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using client::Group;
using ::testing::HasSubstr;

constexpr Reduction kSum = {ReduceOp::kSum};

Tensor Ones(int64_t count) {
  const Tensor tensor = Tensor::Zeros(DataType::kF32, {count});
  std::fill_n(static_cast<float*>(tensor.data()), count, 1.0f);
  return tensor;
}

class BarrierTest : public ParallelTest {
 protected:
  static void ExpectAlike(const std::vector<absl::Status>& statuses, absl::StatusCode code,
                          const std::string& text) {
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_EQ(status.message(), statuses[0].message());
    }
    EXPECT_THAT(std::string(statuses[0].message()), HasSubstr(text));
  }

  // All ranks sum ones in the memory that the form uses.
  void ExpectUsable() {
    ExpectOk(OnRanks([](Group& group) -> absl::Status {
      const Tensor tensor = Upload(group, Ones(300));
      COHORT_RETURN_IF_ERROR(group.AllReduce(tensor, tensor, kSum));
      EXPECT_EQ(static_cast<float*>(Download(group, tensor).data())[299],
                static_cast<float>(group.size()));
      return absl::OkStatus();
    }));
  }
};

TEST_P(BarrierTest, WaitsForAllInOrderWithTensors) {
  for (const int size : {1, 2, 3}) {
    MakeGroup(size);
    std::atomic<int> arrived{0};
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      const Tensor tensor = Upload(group, Ones(100));
      for (int round = 1; round <= 30; ++round) {
        COHORT_RETURN_IF_ERROR(group.AllReduce(tensor, tensor, {ReduceOp::kMax}));
        // The root of a broadcast does not wait for the others.
        COHORT_RETURN_IF_ERROR(group.Broadcast(tensor, round % size));
        ++arrived;
        COHORT_RETURN_IF_ERROR(group.Barrier());
        EXPECT_GE(arrived.load(), round * size) << "round " << round;
        if (round % 3 == 0) COHORT_RETURN_IF_ERROR(group.Barrier());
        COHORT_RETURN_IF_ERROR(group.ExchangeSizes(round).status());
      }
      return absl::OkStatus();
    }));
    ExpectUsable();
  }
}

TEST_P(BarrierTest, NeedsNoCoordinator) {
  MakeGroup(3);
  coordinator_.Pause();
  ExpectOk(OnRanks([](Group& group) {
    absl::Status status;
    for (int i = 0; i < 20; ++i) status.Update(group.Barrier());
    return status;
  }));
  coordinator_.Resume();
}

TEST_P(BarrierTest, NamesTheMissingRanks) {
  MakeGroup(3);
  const std::vector<absl::Status> statuses = OnRanks([](Group& group) {
    client::CallOptions options;
    options.timeout = group.rank() == 0 ? absl::Milliseconds(100) : kTimeout;
    return group.rank() == 1 ? absl::OkStatus() : group.Barrier(options);
  });
  EXPECT_EQ(statuses[0].code(), absl::StatusCode::kDeadlineExceeded) << statuses[0];
  EXPECT_THAT(std::string(statuses[0].message()), HasSubstr("barrier: rank 1 did not come"));
  EXPECT_EQ(client::GetErrorInfo(statuses[0]).missing, std::vector<RankRange>({{1, 1}}));
  EXPECT_EQ(statuses[2].code(), absl::StatusCode::kAborted) << statuses[2];
  EXPECT_THAT(std::string(statuses[2].message()),
              HasSubstr("rank 0 gave up barrier: rank 1 did not come"));
  EXPECT_EQ(rank(1).Barrier().code(), absl::StatusCode::kAborted);
  ExpectOk(OnRanks([](Group& group) { return group.Rejoin(); }));
  ExpectOk(OnRanks([](Group& group) { return group.Barrier(); }));
}

TEST_P(BarrierTest, IsComparedWithOtherCollectives) {
  MakeGroup(3);
  ExpectAlike(OnRanks([](Group& group) {
                const Tensor tensor = Upload(group, Ones(4));
                return group.rank() == 1 ? group.AllReduce(tensor, tensor, kSum) : group.Barrier();
              }),
              absl::StatusCode::kInvalidArgument, "rank 0 barrier; rank 1 all_reduce of f32 [4]");
  ExpectAlike(OnRanks([](Group& group) {
                return group.rank() == 2 ? group.ExchangeSizes(1).status() : group.Barrier();
              }),
              absl::StatusCode::kInvalidArgument, "rank 0 barrier; rank 2 exchange_sizes");
  ExpectAlike(OnRanks([](Group& group) {
                return group.rank() == 0 ? group.FailCollective(absl::InternalError("it is ill"))
                                         : group.Barrier();
              }),
              absl::StatusCode::kInvalidArgument, "it is ill; rank 1 barrier");
  ExpectUsable();
}

TEST_P(BarrierTest, IsRefusedOnAStream) {
  MakeGroup(2);
  const std::vector<absl::Status> statuses = OnRanks([](Group& group) {
    client::CallOptions options;
    options.stream = nullptr;  // the default one
    return group.Barrier(options);
  });
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("stream"));
  }
  // No rank has reached the barrier, and none is counted as arrived.
  ExpectOk(OnRanks([](Group& group) { return group.Barrier(); }));
  ExpectUsable();
}

INSTANTIATE_TEST_SUITE_P(Forms, BarrierTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
