// Groups of a layout, formed by all ranks of a world: their members and their sums. If one rank
// disagrees or fails, all ranks get the error.
#include <algorithm>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/layout/colossalai_layout.h"
#include "client/parallel/layout/groups/create_groups.h"
#include "client/parallel/layout/groups/create_layout.h"
#include "client/parallel/layout/groups/group_facts.h"
#include "client/parallel/layout/megatron_layout.h"
#include "client/parallel/layout/vllm_layout.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/parallel/testing/parallel_test_base.h"

namespace cohort::parallel {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::WorkerTest;

class LayoutTest : public testing::ParallelTest {
 protected:
  // Each member adds the bit of its world rank.
  absl::Status ExpectSum(const Subgroup& subgroup, int global_rank) {
    client::Group& group = *subgroup.group;
    EXPECT_EQ(group.size(), static_cast<int>(subgroup.global_ranks.size()));
    EXPECT_EQ(*GlobalRank(subgroup.global_ranks, group.rank()), global_rank);
    const Tensor own = Tensor::Zeros(DataType::kI32, {1});
    *static_cast<int32_t*>(own.data()) = 1 << global_rank;
    const Tensor input = Upload(group, own);
    const Tensor output = Upload(group, own);
    COHORT_RETURN_IF_ERROR(group.AllReduce(input, output, {ReduceOp::kSum}));
    int32_t sum = 0;
    for (const int rank : subgroup.global_ranks) sum += 1 << rank;
    EXPECT_EQ(*static_cast<int32_t*>(Download(group, output).data()), sum) << group.name();
    return absl::OkStatus();
  }

  // Creates the groups of all kinds of the layout, on all ranks.
  void ExpectGroupsOf(const Layout& layout) {
    ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
      COHORT_ASSIGN_OR_RETURN(const ParallelGroups groups,
                              CreateLayout(world, layout, FactoryOf(world.rank())));
      for (const GroupFamily& family : layout.families()) {
        COHORT_ASSIGN_OR_RETURN(const RankList members, layout.ListOf(family.kind, world.rank()));
        const absl::StatusOr<Subgroup> group = groups.Get(family.kind);
        if (members.empty()) {
          EXPECT_EQ(group.status().code(), absl::StatusCode::kFailedPrecondition);
          continue;
        }
        if (!group.ok()) return group.status();
        EXPECT_EQ(group->global_ranks, members);
        EXPECT_EQ(group->role, family.kind.role);
        COHORT_RETURN_IF_ERROR(ExpectSum(*group, world.rank()));
      }
      return absl::OkStatus();
    }));
  }

  // Expects that the world still works after an error.
  void ExpectWorks() {
    RankList all(static_cast<size_t>(size()));
    std::iota(all.begin(), all.end(), 0);
    ExpectOk(OnRanks([&](client::Group& world) {
      return ExpectSum({std::shared_ptr<client::Group>(&world, [](client::Group*) {}), all},
                       world.rank());
    }));
  }

  // Expects the same error on all ranks, with these words.
  static void ExpectErrorOnAll(const std::vector<absl::Status>& statuses, absl::StatusCode code,
                               const std::vector<std::string>& words) {
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status, statuses.front());
      EXPECT_EQ(status.code(), code) << status;
      for (const std::string& word : words) {
        EXPECT_THAT(std::string(status.message()), HasSubstr(word));
      }
    }
  }
};

TEST_P(LayoutTest, GroupsAddUp) {
  for (const int ranks : {1, 2, 4, 8}) {
    SCOPED_TRACE(ranks);
    MakeGroup(ranks);
    VllmSizes sizes;
    sizes.tensor = ranks >= 2 ? 2 : 1;
    sizes.pipeline = ranks >= 4 ? 2 : 1;
    sizes.data = ranks >= 8 ? 2 : 1;
    sizes.experts = true;
    sizes.expert_load_balancing = true;
    ExpectGroupsOf(*VllmLayout(ranks, sizes));
  }
}

TEST_P(LayoutTest, GroupsOfOtherPresetsAddUp) {
  MakeGroup(4);
  MegatronSizes megatron;
  megatron.pipeline = 4;  // stages in the middle have no embeddings
  ExpectGroupsOf(*MegatronLayout(4, megatron));
  ColossalaiSizes colossalai;
  colossalai.tensor = 4;
  colossalai.mode = TensorMode::k2D;
  ExpectGroupsOf(*ColossalaiLayout(4, colossalai));
}

TEST_P(LayoutTest, ALayoutMayBeAPartOfTheWorld) {
  MakeGroup(3);
  MegatronSizes sizes;
  sizes.tensor = 2;
  sizes.first_rank = 1;
  const Layout layout = *MegatronLayout(2, sizes);
  CreateLayoutOptions options;
  options.kinds = {Role::kTensor, Role::kModel};
  options.separate = {Role::kModel};
  ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const ParallelGroups groups,
                            CreateLayout(world, layout, FactoryOf(world.rank()), options));
    const absl::StatusOr<Subgroup> data = groups.Get(Role::kData);
    EXPECT_THAT(std::string(data.status().message()), HasSubstr("kind data were not among"));
    const absl::StatusOr<Subgroup> tensor = groups.Get(Role::kTensor);
    if (world.rank() == 0) {
      EXPECT_EQ(tensor.status().code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(std::string(tensor.status().message()), HasSubstr("rank 0"));
      return absl::OkStatus();
    }
    if (!tensor.ok()) return tensor.status();
    COHORT_ASSIGN_OR_RETURN(const Subgroup model, groups.Get(Role::kModel));
    EXPECT_NE(model.group, tensor->group);
    COHORT_RETURN_IF_ERROR(ExpectSum(*tensor, world.rank()));
    return ExpectSum(model, world.rank());
  }));

  const Layout larger = *MegatronLayout(4, MegatronSizes());
  ExpectErrorOnAll(OnRanks([&](client::Group& world) {
                     return CreateLayout(world, world.rank() == 1 ? larger : layout,
                                         FactoryOf(world.rank()), options)
                         .status();
                   }),
                   absl::StatusCode::kInvalidArgument, {"rank 1", "ranks 0..3", "the world 3"});
  ExpectWorks();
}

TEST_P(LayoutTest, ListsMayLeaveOutOrOverlap) {
  MakeGroup(4);
  std::vector<std::string> names(4);
  for (int round = 0; round < 2; ++round) {
    ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
      // If the ranks had no common order, each would wait for the next in a circle.
      CreateGroupsOptions options;
      options.name = "circle";
      options.overlap = true;
      COHORT_ASSIGN_OR_RETURN(const std::vector<Subgroup> groups,
                              CreateGroups(world, {{2, 0}, {0, 1}, {1, 2}}, Role::kContext,
                                           FactoryOf(world.rank()), options));
      EXPECT_EQ(groups.size(), world.rank() == 3 ? 0u : 2u);
      for (const Subgroup& group : groups) {
        EXPECT_EQ(group.role, Role::kContext);
        COHORT_RETURN_IF_ERROR(ExpectSum(group, world.rank()));
      }
      if (groups.empty()) return absl::OkStatus();
      std::string& name = names[static_cast<size_t>(world.rank())];
      EXPECT_NE(groups[0].group->name(), name);
      name = groups[0].group->name();
      return absl::OkStatus();
    }));
  }
  EXPECT_EQ(names[0], names[2]);
  EXPECT_THAT(names[0], AllOf(HasSubstr(rank(0).name()), HasSubstr("/circle:")));

  ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(
        const std::vector<Subgroup> groups,
        CreateGroups(world, {{3, 1}}, Role::kUnspecified, FactoryOf(world.rank())));
    EXPECT_EQ(groups.size(), world.rank() % 2 == 0 ? 0u : 1u);
    if (groups.empty()) return absl::OkStatus();
    EXPECT_THAT(groups[0].group->name(), HasSubstr("/anonymous:"));
    return ExpectSum(groups[0], world.rank());
  }));
}

TEST_P(LayoutTest, AllRanksLearnWhichRankDiffersAndHow) {
  MakeGroup(3);
  struct Call {
    RankLists lists = {{0, 1}, {2}};
    Role role = Role::kTensor;
    CreateGroupsOptions options;
  };
  const auto differ = [&](const Call& other, const std::vector<std::string>& words) {
    const auto statuses = OnRanks([&](client::Group& world) {
      const Call call = world.rank() == 2 ? other : Call();
      return CreateGroups(world, call.lists, call.role, FactoryOf(world.rank()), call.options)
          .status();
    });
    ExpectErrorOnAll(statuses, absl::StatusCode::kInvalidArgument, words);
    ExpectWorks();
  };
  Call call;
  call.lists = {{0, 2}, {1}};
  differ(call,
         {"ranks 0 and 2", "the lists", "[[0, 1], [2]] on rank 0", "[[0, 2], [1]] on rank 2"});
  call = {};
  call.role = Role::kData;
  differ(call, {"the role tensor on rank 0, data on rank 2"});
  call = {};
  call.options.name = "other";
  differ(call, {"the name anonymous on rank 0, other on rank 2"});
  call = {};
  call.options.overlap = true;
  differ(call, {"overlap false on rank 0, true on rank 2"});
  call = {};
  call.options.timeout = absl::Seconds(7);
  differ(call, {"the timeout", "7s on rank 2"});

  // Mistakes in one rank's own arguments.
  call = {};
  call.lists = {{0, 3}};
  differ(call, {"rank 2", "rank 3 in the list [0, 3]", "3"});
  call.lists = {{0, -1}};
  differ(call, {"rank 2", "rank -1 in the list [0, -1]"});
  call.lists = {{0, 1, 0}};
  differ(call, {"rank 2", "rank 0 is twice in the list [0, 1, 0]"});
  call.lists = {{0, 1}, {1, 2}};
  differ(call, {"rank 2", "rank 1 is in the lists [0, 1] and [1, 2]"});
  call.lists = {{}};
  differ(call, {"rank 2", "list 0 is empty"});
  call = {};
  call.options.name = "no/name";
  differ(call, {"rank 2", "no/name"});
  const auto statuses = OnRanks([&](client::Group& world) {
    return CreateGroups(world, {{0, 1, 2}}, Role::kTensor,
                        world.rank() == 1 ? nullptr : FactoryOf(world.rank()))
        .status();
  });
  ExpectErrorOnAll(statuses, absl::StatusCode::kInvalidArgument, {"rank 1", "no factory"});
  // A rank without lists tells the others why.
  ExpectErrorOnAll(
      OnRanks([&](client::Group& world) -> absl::Status {
        if (world.rank() == 1) {
          return FailCreateGroups(world, absl::NotFoundError("no file"));
        }
        return CreateGroups(world, {{0, 2}}, Role::kTensor, FactoryOf(world.rank())).status();
      }),
      absl::StatusCode::kInvalidArgument, {"rank 1", "no file"});
  ExpectWorks();
}

TEST_P(LayoutTest, LayoutsThatDifferAreNamed) {
  MakeGroup(4);
  VllmSizes sizes;
  sizes.tensor = 4;
  VllmSizes decode = sizes;
  decode.decode_context = 2;
  ExpectErrorOnAll(
      OnRanks([&](client::Group& world) {
        return CreateLayout(world, *VllmLayout(4, world.rank() == 1 ? decode : sizes),
                            FactoryOf(world.rank()))
            .status();
      }),
      absl::StatusCode::kInvalidArgument,
      {"ranks 0 and 1", "groups of kind decode-context [[0], [1], [2], [3]] on rank 0"});
  // A layout and lists of ranks differ, too.
  ExpectErrorOnAll(
      OnRanks([&](client::Group& world) -> absl::Status {
        if (world.rank() == 3) {
          return CreateGroups(world, {{0}}, Role::kData, FactoryOf(3)).status();
        }
        return CreateLayout(world, *VllmLayout(4, sizes), FactoryOf(world.rank())).status();
      }),
      absl::StatusCode::kInvalidArgument, {"ranks 0 and 3"});
  // A rank without a layout tells the others why.
  ExpectErrorOnAll(
      OnRanks([&](client::Group& world) -> absl::Status {
        if (world.rank() == 1) return FailCreateLayout(world, absl::NotFoundError("no file"));
        return CreateLayout(world, *VllmLayout(4, sizes), FactoryOf(world.rank())).status();
      }),
      absl::StatusCode::kInvalidArgument, {"rank 1", "no file"});
  // So does any other exchange at the same time; the rank that calls it gets the objects that were
  // sent.
  std::vector<absl::Status> statuses = OnRanks([&](client::Group& world) -> absl::Status {
    if (world.rank() == 2) return world.AllGatherObjects("{\"digest\": 1}").status();
    return CreateLayout(world, *VllmLayout(4, sizes), FactoryOf(world.rank())).status();
  });
  EXPECT_TRUE(statuses[2].ok()) << statuses[2];
  statuses.erase(statuses.begin() + 2);
  ExpectErrorOnAll(statuses, absl::StatusCode::kInvalidArgument, {"rank 2", "another exchange"});
  ExpectWorks();
}

TEST_P(LayoutTest, ErrorsShowTheDifferingPartOfLongLists) {
  MakeGroup(2);
  CreateGroupsOptions options;
  options.overlap = true;
  ExpectErrorOnAll(
      OnRanks([&](client::Group& world) {
        RankLists lists(500, {0, 1});
        if (world.rank() == 1) lists[400] = {1, 0};
        return CreateGroups(world, lists, Role::kData, FactoryOf(world.rank()), options).status();
      }),
      absl::StatusCode::kInvalidArgument,
      {"the lists ...", "[0, 1], [0, 1], [0, 1]", "[0, 1], [1, 0], [0, 1]", "on rank 1"});
}

TEST_P(LayoutTest, AllRanksLearnWhichRankFailed) {
  MakeGroup(3);
  CreateGroupsOptions options;
  options.timeout = absl::Seconds(1);
  const auto statuses = OnRanks([&](client::Group& world) {
    const client::GroupFactory real = FactoryOf(world.rank());
    const client::GroupFactory failing =
        [&](const client::PlannedRank& place) -> absl::StatusOr<std::unique_ptr<client::Group>> {
      // The first group is made, on both of its ranks.
      if (world.rank() == 1 && place.world_size == 3) return absl::ResourceExhaustedError("no GPU");
      return real(place);
    };
    options.overlap = true;
    return CreateGroups(world, {{0, 1}, {0, 1, 2}}, Role::kTensor, failing, options).status();
  });
  ExpectErrorOnAll(statuses, absl::StatusCode::kResourceExhausted,
                   {"rank 1 of group", "no GPU", "of ranks 0,1,2", "nor could ranks 0,2"});
  ExpectWorks();
}

// Ranks in processes of their own; rank 1 is killed while its group forms.
TEST_F(WorkerTest, ARankThatDiesIsNamed) {
  std::vector<std::unique_ptr<testing::ChildProcess>> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(std::make_unique<testing::ChildProcess>(std::vector<std::string>{
        "tests/parallel/testing/layout_rank_main", coordinator_.address(), absl::StrCat(rank)}));
  }
  for (const int rank : {0, 2}) {
    const absl::StatusOr<std::string> line = ranks[static_cast<size_t>(rank)]->ReadLine(kTimeout);
    ASSERT_TRUE(line.ok()) << line.status();
    // Rank 2's group has no other member, and rank 2 gets the error all the same.
    EXPECT_THAT(*line, AllOf(HasSubstr("ABORTED"), HasSubstr("rank-1"),
                             HasSubstr("while making groups of some of its ranks")));
  }
}

TEST_P(LayoutTest, FactsOfOneMachine) {
  MakeGroup(3);
  ExpectOk(OnRanks([&](client::Group& world) -> absl::Status {
    COHORT_ASSIGN_OR_RETURN(const std::vector<bool> same, SameHost(world, 2));
    EXPECT_EQ(same, std::vector<bool>(3, true));
    EXPECT_EQ(NodeCount(world), 1);
    EXPECT_EQ(SharesMemory(world), std::vector<bool>(3, true));
    EXPECT_EQ(SameHost(world, 3).status().code(), absl::StatusCode::kInvalidArgument);
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, LayoutTest, ::testing::ValuesIn(testing::kForms),
                         testing::FormName);

}  // namespace
}  // namespace cohort::parallel
