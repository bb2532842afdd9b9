// Groups that only their members create, on groups of every form: overlapping sets, the same set
// again, and members that do not come, fail or disagree.
#include "client/parallel/layout/groups/create_group.h"

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "client/parallel/collectives/destroy.h"
#include "gmock/gmock.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using parallel::CreateGroup;
using parallel::CreateGroupOptions;
using parallel::RankList;
using parallel::Role;
using parallel::Subgroup;

// For members that do not come.
constexpr absl::Duration kShort = absl::Milliseconds(700);

class CreateGroupTest : public ParallelTest {
 protected:
  absl::StatusOr<Subgroup> Create(client::Group& world, const RankList& members,
                                  const CreateGroupOptions& options = {}) {
    return CreateGroup(world, members, Role::kTensor, FactoryOf(world.rank()), options);
  }
  static CreateGroupOptions Within(absl::Duration timeout) {
    CreateGroupOptions options;
    options.timeout = timeout;
    return options;
  }

  // Each member adds the bit of its world rank, so that a member in the wrong group changes the
  // sum.
  static absl::Status ExpectSum(const Subgroup& subgroup, int global_rank) {
    client::Group& group = *subgroup.group;
    if (group.size() != static_cast<int>(subgroup.global_ranks.size()) ||
        subgroup.global_ranks[static_cast<size_t>(group.rank())] != global_rank) {
      return absl::InternalError(
          absl::StrCat("rank ", group.rank(), " of ", group.size(), " is rank ", global_rank));
    }
    const Tensor own = Tensor::Zeros(DataType::kI32, {1});
    *static_cast<int32_t*>(own.data()) = 1 << global_rank;
    const Tensor input = Upload(group, own);
    const Tensor output = Upload(group, own);
    COHORT_RETURN_IF_ERROR(group.AllReduce(input, output, {ReduceOp::kSum}));
    int32_t expected = 0;
    for (const int rank : subgroup.global_ranks) expected += 1 << rank;
    const int32_t sum = *static_cast<int32_t*>(Download(group, output).data());
    if (sum == expected) return absl::OkStatus();
    return absl::InternalError(absl::StrCat("the sum is ", sum, ", expected ", expected));
  }
};

TEST_P(CreateGroupTest, OverlappingSetsInDifferentOrders) {
  MakeGroup(4);
  const RankList a = {0, 1};
  const RankList b = {2, 1};
  const RankList c = {3, 0, 2};
  // Rank 1 begins with the second set, and rank 0 with the first.
  const std::vector<std::vector<RankList>> orders = {{a, c}, {b, a}, {b, c}, {c}};
  Mutex mutex;
  std::set<std::pair<RankList, std::string>> names;
  ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
    std::vector<Subgroup> groups;
    for (const RankList& members : orders[static_cast<size_t>(world.rank())]) {
      COHORT_ASSIGN_OR_RETURN(groups.emplace_back(), Create(world, members));
      MutexLock lock(&mutex);
      names.emplace(members, groups.back().group->name());
    }
    for (const Subgroup& group : groups) COHORT_RETURN_IF_ERROR(ExpectSum(group, world.rank()));
    return absl::OkStatus();
  }));
  // Each set has one name.
  EXPECT_EQ(names.size(), 3u);
}

TEST_P(CreateGroupTest, TheSameMembersTwice) {
  MakeGroup(3);
  Mutex mutex;
  std::set<std::string> names;
  ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
    if (world.rank() == 1) return absl::OkStatus();
    COHORT_ASSIGN_OR_RETURN(Subgroup first, Create(world, {0, 2}));
    COHORT_ASSIGN_OR_RETURN(const Subgroup second, Create(world, {0, 2}));
    COHORT_RETURN_IF_ERROR(ExpectSum(second, world.rank()));
    COHORT_RETURN_IF_ERROR(ExpectSum(first, world.rank()));
    {
      MutexLock lock(&mutex);
      names.insert(first.group->name());
      names.insert(second.group->name());
    }
    COHORT_RETURN_IF_ERROR(parallel::Destroy(std::move(first.group), absl::Seconds(60)));
    return ExpectSum(second, world.rank());
  }));
  EXPECT_EQ(names.size(), 2u);
  // Rank 1, which is in neither group, took no part, and the group of all ranks works.
  ExpectOk(OnRanks([&](client::Group& world) { return world.Barrier(); }));
}

TEST_P(CreateGroupTest, AMemberThatNeverCallsIsNamed) {
  MakeGroup(3);
  const absl::Status alone = Create(rank(0), {0, 2}, Within(kShort)).status();
  EXPECT_EQ(alone.code(), absl::StatusCode::kDeadlineExceeded) << alone;
  EXPECT_THAT(std::string(alone.message()),
              AllOf(HasSubstr("1 of 2 missing"), HasSubstr("rank 2")));
}

TEST_P(CreateGroupTest, ACreationThatTimedOutDoesNotMisalignTheNext) {
  MakeGroup(3);
  // Rank 0 was alone in two creations, and rank 2 in one.
  for (const int alone : {0, 2, 0}) {
    EXPECT_EQ(Create(rank(alone), {0, 2}, Within(kShort)).status().code(),
              absl::StatusCode::kDeadlineExceeded);
  }
  // One rank fails after the agreement: the others wait for it to join.
  const client::GroupFactory failing =
      [](const client::PlannedRank&) -> absl::StatusOr<std::unique_ptr<client::Group>> {
    return absl::ResourceExhaustedError("no GPU");
  };
  const std::vector<absl::Status> failed = OnRanks([&](client::Group& world) -> absl::Status {
    switch (world.rank()) {
      case 0:
        return Create(world, {0, 2}, Within(absl::Seconds(2))).status();
      case 2:
        return CreateGroup(world, {0, 2}, Role::kTensor, failing, Within(absl::Seconds(2)))
            .status();
      default:
        return absl::OkStatus();
    }
  });
  EXPECT_EQ(failed[0].code(), absl::StatusCode::kDeadlineExceeded) << failed[0];
  EXPECT_EQ(failed[2].code(), absl::StatusCode::kResourceExhausted) << failed[2];
  EXPECT_THAT(std::string(failed[2].message()), HasSubstr("of ranks 0,2: no GPU"));
  for (int i = 0; i < 2; ++i) {
    ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
      if (world.rank() == 1) return absl::OkStatus();
      COHORT_ASSIGN_OR_RETURN(const Subgroup group, Create(world, {0, 2}));
      return ExpectSum(group, world.rank());
    }));
  }
}

TEST_P(CreateGroupTest, MembersThatWantSomethingElseAreBothNamed) {
  MakeGroup(3);
  const auto both = [&](const std::function<absl::Status(client::Group&)>& body,
                        const std::vector<std::string>& words) {
    const std::vector<absl::Status> statuses = OnRanks([&](client::Group& world) {
      return world.rank() == 0 ? absl::OkStatus() : body(world);
    });
    EXPECT_EQ(statuses[1], statuses[2]);
    EXPECT_EQ(statuses[1].code(), absl::StatusCode::kInvalidArgument) << statuses[1];
    for (const std::string& word : words) {
      EXPECT_THAT(std::string(statuses[1].message()), HasSubstr(word));
    }
  };
  both(
      [&](client::Group& world) {
        return Create(world, world.rank() == 1 ? RankList{1, 2} : RankList{2, 1}).status();
      },
      {"the members", "[[1, 2]] on rank 1", "[[2, 1]] on rank 2"});
  both(
      [&](client::Group& world) {
        CreateGroupOptions options;
        options.name = world.rank() == 1 ? "one" : "two";
        return Create(world, {1, 2}, options).status();
      },
      {"the name one on rank 1, two on rank 2"});
  both(
      [&](client::Group& world) {
        return CreateGroup(world, {1, 2}, Role::kTensor,
                           world.rank() == 2 ? nullptr : FactoryOf(1))
            .status();
      },
      {"rank 2", "no factory"});
}

TEST_P(CreateGroupTest, MembersThatCannotBeAreRefusedAtOnce) {
  MakeGroup(3);
  const auto refused = [&](const RankList& members, const std::string& words) {
    const absl::Status status = Create(rank(1), members).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("rank 1 of group"), HasSubstr(words)));
  };
  refused({1, 3}, "member 3 is not one of the 3 ranks");
  refused({-1, 1}, "member -1 is not one");
  refused({1, 2, 1}, "rank 1 is a member twice");
  refused({0, 2}, "this rank is not a member");
  refused({}, "this rank is not a member");
  // A group of one member needs no other rank.
  const absl::StatusOr<Subgroup> lone = Create(rank(1), {1});
  ASSERT_TRUE(lone.ok()) << lone.status();
  EXPECT_EQ(ExpectSum(*lone, 1), absl::OkStatus());
}

TEST_P(CreateGroupTest, ObjectsOfMembers) {
  MakeGroup(4);
  // Two rounds of two sets at once, beside a set of all ranks but one.
  ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
    for (const std::string& round : {std::string("first"), std::string("second")}) {
      const std::string own = absl::StrCat(round, " of ", world.rank());
      if (world.rank() == 1 || world.rank() == 3) {
        COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> objects,
                                world.AllGatherObjectsOf({1, 3}, own));
        EXPECT_THAT(objects,
                    ElementsAre(absl::StrCat(round, " of 1"), absl::StrCat(round, " of 3")));
      } else {
        COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> objects,
                                world.AllGatherObjectsOf({0, 2}, own));
        EXPECT_THAT(objects,
                    ElementsAre(absl::StrCat(round, " of 0"), absl::StrCat(round, " of 2")));
      }
      if (world.rank() == 2) continue;
      COHORT_ASSIGN_OR_RETURN(const std::vector<std::string> objects,
                              world.AllGatherObjectsOf({0, 1, 3}, own));
      EXPECT_THAT(objects, ElementsAre(absl::StrCat(round, " of 0"), absl::StrCat(round, " of 1"),
                                       absl::StrCat(round, " of 3")));
    }
    return absl::OkStatus();
  }));
  const std::vector<RankList> wrong = {{}, {0, 2}, {2, 1}, {1, 1}, {-1, 1}, {1, 4}};
  for (const RankList& members : wrong) {
    const absl::Status status = rank(1).AllGatherObjectsOf(members, "x").status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("objects of members"));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, CreateGroupTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
