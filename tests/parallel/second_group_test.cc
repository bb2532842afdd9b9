// Two groups at the same time: a second one over the same members, whose calls do not wait for
// those of the first; and a next group that forms while the present one works.
#include <algorithm>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status_macros.h"
#include "client/collective/async_calls.h"
#include "client/parallel/layout/groups/create_groups.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using client::Group;
using parallel::Subgroup;
using ::testing::HasSubstr;

constexpr Reduction kSum = {ReduceOp::kSum};

class SecondGroupTest : public ParallelTest {
 protected:
  static Tensor Ones(Group& group, int64_t count) {
    const Tensor tensor = Tensor::Zeros(DataType::kF32, {count});
    std::fill_n(static_cast<float*>(tensor.data()), count, 1.0f);
    return Upload(group, tensor);
  }
  static absl::Status AddUp(Group& group) {
    const Tensor tensor = Ones(group, 300);
    COHORT_RETURN_IF_ERROR(group.AllReduce(tensor, tensor, kSum));
    EXPECT_EQ(static_cast<float*>(Download(group, tensor).data())[299],
              static_cast<float>(group.size()));
    return absl::OkStatus();
  }

  // Makes a second group of all ranks of `world`.
  absl::StatusOr<std::shared_ptr<Group>> MakeSecond(Group& world) {
    parallel::CreateGroupsOptions options;
    options.name = "second";
    COHORT_ASSIGN_OR_RETURN(const std::vector<Subgroup> made,
                            CreateGroups(world, {{0, 1, 2}}, parallel::Role::kUnspecified,
                                         FactoryOf(world.rank()), options));
    EXPECT_EQ(made.size(), 1u);
    EXPECT_EQ(made[0].group->rank(), world.rank());
    EXPECT_EQ(made[0].group->size(), world.size());
    EXPECT_NE(made[0].group->name(), world.name());
    return made[0].group;
  }
};

TEST_P(SecondGroupTest, DoesNotWaitForCallsOfTheFirst) {
  MakeGroup(3);
  ExpectOk(OnRanks([&](Group& world) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Group> second, MakeSecond(world));
    // Two ranks wait in the world for the third, which calls once the second group has done its
    // work.
    client::AsyncCalls calls(world);
    client::PendingCall waiting;
    if (world.rank() != 2) waiting = calls.Start(AddUp);
    for (int i = 0; i < 20; ++i) {
      COHORT_RETURN_IF_ERROR(AddUp(*second));
      COHORT_RETURN_IF_ERROR(second->Barrier());
    }
    if (world.rank() == 2) waiting = calls.Start(AddUp);
    COHORT_RETURN_IF_ERROR(waiting.Wait(kTimeout));
    // All ranks wait at a barrier before they leave: a rank that leaves ends the calls of the
    // others.
    return world.AllGatherObjects("").status();
  }));
}

TEST_P(SecondGroupTest, EndsAlone) {
  MakeGroup(3);
  ExpectOk(OnRanks([&](Group& world) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<Group> second, MakeSecond(world));
    if (world.rank() == 1) second->Abort(absl::InternalError("enough"));
    const absl::Status ended = AddUp(*second);
    EXPECT_EQ(ended.code(), absl::StatusCode::kAborted) << ended;
    EXPECT_THAT(std::string(ended.message()), HasSubstr("rank 1 aborted: enough"));
    return AddUp(world);
  }));
}

// A rank is added: the new group forms while the old one works, and then replaces it.
TEST_P(SecondGroupTest, TheNextIsPreparedBesideThePresentOne) {
  constexpr int kOld = 3;
  absl::Notification half_way;
  OnThreads(kOld + 1, [&](int rank) {
    std::unique_ptr<Group> present;
    if (rank < kOld) {
      auto joined = Join("present", rank, kOld);
      ASSERT_TRUE(joined.ok()) << joined.status();
      present = *std::move(joined);
    } else {
      ASSERT_TRUE(half_way.WaitForNotificationWithTimeout(kTimeout));
    }
    auto prepared = std::async(std::launch::async, [&] { return Join("next", rank, kOld + 1); });
    for (int i = 0; i < 40 && present != nullptr; ++i) {
      EXPECT_EQ(AddUp(*present), absl::OkStatus());
      if (i == 20 && rank == 0) half_way.Notify();
    }
    absl::StatusOr<std::unique_ptr<Group>> next = prepared.get();
    ASSERT_TRUE(next.ok()) << next.status();
    // After this barrier no rank is in a call of the present group.
    EXPECT_EQ((*next)->Barrier(), absl::OkStatus());
    present.reset();
    EXPECT_EQ(AddUp(**next), absl::OkStatus());
    EXPECT_EQ((*next)->AllGatherObjects("").status(), absl::OkStatus());
  });
}

INSTANTIATE_TEST_SUITE_P(Forms, SecondGroupTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
