// Tensors passed on around a ring, on groups of every form.
#include "client/parallel/pipeline/ring_shift.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/pipeline_test_base.h"

namespace cohort::testing {
namespace {

using client::Group;
using parallel::Tensors;
using ::testing::HasSubstr;

class RingShiftTest : public PipelineFixture {
 protected:
  // A shift by one returns the tensor that the previous rank passes to it.
  void ExpectShift() {
    ExpectOk(OnRanks([&](Group& group) -> absl::Status {
      const auto tensor = [](int rank) {
        return Expected(static_cast<uint32_t>(rank) + 1, true)[0];
      };
      COHORT_ASSIGN_OR_RETURN(const Tensor got,
                              RingShift(messages(group), Upload(group, tensor(group.rank()))));
      return Same(group, Tensors{got}, {tensor((group.rank() + size() - 1) % size())});
    }));
  }
};

TEST_P(RingShiftTest, AnyDistance) {
  for (const int size : {1, 2, 3, 8}) {
    MakeStages(size);
    for (const int distance : {1, -1, 2, 0, size, 5}) {
      for (const bool large : {false, true}) {
        SCOPED_TRACE(absl::StrCat(size, " ranks, by ", distance));
        ExpectOk(OnRanks([&](Group& group) -> absl::Status {
          const int own = group.rank();
          const int from = ((own - distance) % size + size) % size;
          const auto tensor = [&](int rank) { return Expected(Seed(rank, 0), large)[0]; };
          const Tensor mine = Upload(group, tensor(own));
          COHORT_ASSIGN_OR_RETURN(const Tensor got, RingShift(messages(group), mine, distance));
          EXPECT_TRUE(got.count() == 0 || got.data() != mine.data());
          return Same(group, Tensors{got}, {tensor(from)});
        }));
      }
    }
  }
}

TEST_P(RingShiftTest, ATensorThatCannotBeSentFailsOnItsRankAndItsReceiver) {
  for (const int size : {2, 4}) {
    for (const std::vector<int>& bad : std::vector<std::vector<int>>{{0}, {0, 1}, {1, 0, 3, 2}}) {
      const auto is_bad = [&](int rank) {
        return std::find(bad.begin(), bad.end(), rank) != bad.end();
      };
      MakeStages(size);
      for (const bool large : {false, true}) {
        SCOPED_TRACE(absl::StrCat(size, " ranks, ", bad.size(), " bad, ", large));
        const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
          const Tensor good = Upload(group, Expected(1, large)[0]);
          const Tensor null(nullptr, DataType::kF32, {4});
          return RingShift(messages(group), is_bad(group.rank()) ? null : good).status();
        });
        for (int r = 0; r < size; ++r) {
          const absl::Status& status = statuses[static_cast<size_t>(r)];
          const bool fails = is_bad(r) || is_bad((r + size - 1) % size);
          EXPECT_EQ(status.code(),
                    fails ? absl::StatusCode::kInvalidArgument : absl::StatusCode::kOk)
              << "rank " << r << ": " << status;
        }
        // A bad rank drops the tensor that it received: it is not the result of the next shift.
        ExpectShift();
        if (HasFailure()) return;
      }
    }
  }
}

TEST_P(RingShiftTest, ATensorThatIsRefusedFailsOnItsRankAndItsReceiver) {
  parallel::MessagesOptions limits;
  limits.max_message_bytes = int64_t{8} << 20;
  for (const int size : {2, 4}) {
    MakeStages(size, {}, limits);
    const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
      const int64_t bytes = group.rank() == 0 ? limits.max_message_bytes + 1 : 10;
      const Tensor tensor = Upload(group, Tensor::Zeros(DataType::kU8, {bytes}));
      return RingShift(messages(group), tensor).status();
    });
    for (int r = 0; r < size; ++r) {
      const absl::Status& status = statuses[static_cast<size_t>(r)];
      EXPECT_EQ(status.code(), r < 2 ? absl::StatusCode::kResourceExhausted : absl::StatusCode::kOk)
          << "rank " << r << ": " << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(r < 2 ? "rank 1 takes at most" : ""));
    }
    ExpectShift();
    if (HasFailure()) return;
  }
}

TEST_P(RingShiftTest, FailRingShiftLeavesNothingForTheNextCall) {
  for (const int size : {1, 2, 4}) {
    MakeStages(size);
    const absl::Status why = absl::InvalidArgumentError("no file");
    const std::vector<absl::Status> statuses = OnRanks([&](Group& group) -> absl::Status {
      if (group.rank() == 0) return FailRingShift(messages(group), why);
      const Tensor good = Upload(group, Expected(1, true)[0]);
      return RingShift(messages(group), good).status();
    });
    for (int r = 0; r < size; ++r) {
      const absl::Status& status = statuses[static_cast<size_t>(r)];
      EXPECT_EQ(status.ok(), r > 1) << status;
      EXPECT_THAT(std::string(status.message()), HasSubstr(r > 1 ? "" : "no file"));
    }
    ExpectShift();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, RingShiftTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
