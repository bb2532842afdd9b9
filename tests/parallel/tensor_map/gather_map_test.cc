// The tensors of a map go in parts from the ranks of one group to those of another, which gather
// them, on groups of every form.
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/tensor_map/send_receive.h"
#include "tests/parallel/testing/map_test_base.h"

namespace cohort::testing {
namespace {

using parallel::MapGatherOptions;
using parallel::Messages;
using parallel::ReceiveMapOptions;
using parallel::ReceiveTensorMap;
using parallel::SendMapOptions;
using parallel::SendTensorMap;
using parallel::TensorMap;

// So large that its messages wait for their receiver, in parts as well.
constexpr int64_t kLarge = 1800000;

// Two stages of as many ranks as there are parts; rank r of the first sends to rank r of the
// second.
class GatherMapTest : public MapTest {
 protected:
  using Options = std::function<MapGatherOptions(client::Group& stage)>;

  void MakeStages(int parts) {
    MakeGroup(2 * parts);
    MakeFactories();
    const int made = stages_made_++;
    stages_.clear();
    stages_.resize(static_cast<size_t>(2 * parts));
    ExpectOk(OnRanks([&](client::Group& group) {
      auto stage = JoinBeside(group, absl::StrCat("stage-", made, "-", group.rank() / parts),
                              group.rank() % parts, parts);
      if (!stage.ok()) return stage.status();
      stages_[static_cast<size_t>(group.rank())] = *std::move(stage);
      return absl::OkStatus();
    }));
  }
  // A second group of the same rank: with its GPU, where it has one.
  absl::StatusOr<std::unique_ptr<client::Group>> JoinBeside(const client::Group& group,
                                                            const std::string& name, int rank,
                                                            int size) {
    client::PlannedRank place;
    place.name = name;
    place.rank = rank;
    place.world_size = size;
    return factories_[static_cast<size_t>(group.rank())](place);
  }
  void MakeFactories() {
    factories_.clear();
    for (int rank = 0; rank < size(); ++rank) factories_.push_back(FactoryOf(rank));
  }
  void TearDown() override {
    stages_.clear();
    MapTest::TearDown();
  }

  client::Group& stage(const client::Group& group) {
    return *stages_[static_cast<size_t>(group.rank())];
  }

  // Returns the statuses by rank. `sent` and `received` are by rank of their stage.
  std::vector<absl::Status> Pass(const std::function<TensorMap(client::Group&)>& make,
                                 const Options& sends, const Options& receives,
                                 std::vector<std::string>* sent = nullptr,
                                 std::vector<std::string>* received = nullptr) {
    std::vector<std::string> texts(static_cast<size_t>(size()));
    std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
      Messages messages(group);
      const int parts = size() / 2;
      std::string& text = texts[static_cast<size_t>(group.rank())];
      if (group.rank() < parts) {
        SendMapOptions options;
        options.to = group.rank() + parts;
        options.gather = sends(stage(group));
        const TensorMap map = make(group);
        const absl::Status status = SendTensorMap(messages, map, options);
        if (status.ok()) text = Text(map);
        return status;
      }
      ReceiveMapOptions options;
      options.from = group.rank() - parts;
      options.gather = receives(stage(group));
      const auto map = ReceiveTensorMap(messages, options);
      if (map.ok()) text = Text(*map);
      return map.status();
    });
    const auto half = texts.begin() + size() / 2;
    if (sent != nullptr) sent->assign(texts.begin(), half);
    if (received != nullptr) received->assign(half, texts.end());
    return statuses;
  }

  // The same on all ranks, except "own".
  static TensorMap Activations(client::Group& group) {
    return {{"hidden", Upload(group, Pattern(DataType::kBF16, {24, 500}))},
            {"turned", Upload(group, Pattern(DataType::kF32, {40, 24})).Permute({1, 0})},
            {"inner", TensorMap{{"residual", Upload(group, Pattern(DataType::kF16, {24}))}}},
            {"odd", Upload(group, Pattern(DataType::kF16, {7}))},
            {"here", Pattern(DataType::kI64, {48})},
            {"empty", Upload(group, Pattern(DataType::kI64, {0, 4}))},
            {"own", Upload(group, Pattern(DataType::kI64, {24}, group.rank()))}};
  }
  static MapGatherOptions All(client::Group& stage) {
    MapGatherOptions options;
    options.group = &stage;
    options.all = true;
    options.overrides = {{{"own"}, false}};
    return options;
  }
  static MapGatherOptions Nothing(client::Group& /*stage*/) { return {}; }

  void ExpectPasses(const Options& sends) {
    std::vector<std::string> sent;
    std::vector<std::string> received;
    ExpectOk(Pass(Activations, sends, All, &sent, &received));
    EXPECT_EQ(received, sent);
  }

 private:
  std::vector<client::GroupFactory> factories_;         // by rank
  std::vector<std::unique_ptr<client::Group>> stages_;  // of rank r
  int stages_made_ = 0;
};

TEST_P(GatherMapTest, PartsBecomeWhole) {
  for (const int parts : {1, 2, 3, 4}) {
    MakeStages(parts);
    ExpectPasses(All);
    // Sends only one tensor in parts; then none, though the receivers could gather.
    ExpectPasses([](client::Group& stage) {
      MapGatherOptions options;
      options.group = &stage;
      options.overrides = {{{"inner", "residual"}, true}, {{"not there"}, false}};
      return options;
    });
    ExpectPasses(Nothing);
  }
}

TEST_P(GatherMapTest, OnlyRequestedTensorsTravelInParts) {
  MakeStages(2);
  // The group alone sends no tensor in parts, so that tensors that differ between ranks stay apart.
  ExpectPasses([](client::Group& stage) {
    MapGatherOptions options;
    options.group = &stage;
    return options;
  });
}

TEST_P(GatherMapTest, AnOverrideThatCannotBeFollowedIsAnErrorOfBoth) {
  for (const int parts : {2, 4}) {
    MakeStages(parts);
    const auto forced = [](const parallel::Path& path, bool with_group) {
      return [path, with_group](client::Group& stage) {
        MapGatherOptions options;
        if (with_group) options.group = &stage;
        options.overrides = {{path, true}};
        return options;
      };
    };
    const std::vector<std::pair<Options, std::string>> cases = {
        {forced({"odd"}, true), "entry 'odd' cannot go in parts: "},
        {forced({"hidden"}, false), "entry 'hidden' cannot go in parts: there is no group"},
        {forced({"inner"}, true), "entry 'inner', which is to go in parts, is a map"},
        {forced({"inner/residual"}, true),
         "entry 'inner/residual', which is to go in parts, is not"},
    };
    for (const auto& [sends, why] : cases) {
      for (const absl::Status& status : Pass(Activations, sends, All)) {
        ExpectError(status, absl::StatusCode::kInvalidArgument, why);
      }
      ExpectPasses(All);
    }
  }
}

TEST_P(GatherMapTest, AReceiverThatDoesNotGatherRejectsPartsAndItsSenderFails) {
  for (const int parts : {2, 3}) {
    MakeStages(parts);
    for (const int64_t bytes : {int64_t{6}, kLarge}) {
      const auto make = [bytes](client::Group& group) {
        return TensorMap{{"t", Upload(group, Pattern(DataType::kU8, {bytes}))}};
      };
      for (const absl::Status& status : Pass(make, All, Nothing)) {
        ExpectError(status, absl::StatusCode::kInvalidArgument, "gathers nothing");
      }
      ExpectPasses(All);
    }
  }
}

TEST_P(GatherMapTest, AGatheringGroupOfAnotherSizeIsRefused) {
  MakeGroup(3);
  MakeFactories();
  // Rank 0 sends one third to rank 1, which gathers with rank 2.
  std::vector<std::unique_ptr<client::Group>> pair(3);
  ExpectOk(OnRanks([&](client::Group& group) {
    if (group.rank() == 0) return absl::OkStatus();
    auto made = JoinBeside(group, "pair", group.rank() - 1, 2);
    if (!made.ok()) return made.status();
    pair[static_cast<size_t>(group.rank())] = *std::move(made);
    return absl::OkStatus();
  }));
  const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
    Messages messages(group);
    if (group.rank() == 0) {
      SendMapOptions options;
      options.gather.group = &group;  // of three
      options.gather.all = true;
      const TensorMap map = {{"large", Upload(group, Pattern(DataType::kU8, {kLarge}))}};
      return SendTensorMap(messages, map, options);
    }
    client::Group& gathers = *pair[static_cast<size_t>(group.rank())];
    if (group.rank() == 2) return gathers.ExchangeSizes(1).status();
    ReceiveMapOptions options;
    options.gather.group = &gathers;
    return ReceiveTensorMap(messages, options).status();
  });
  for (const int rank : {0, 1}) {
    ExpectError(statuses[static_cast<size_t>(rank)], absl::StatusCode::kInvalidArgument,
                "gathers in group pair of 2 ranks");
  }
}

TEST_P(GatherMapTest, AMissingPartFailsAllGatheringRanks) {
  MakeStages(3);
  const std::vector<absl::Status> statuses = Pass(
      [](client::Group& group) {
        TensorMap map = Activations(group);
        if (group.rank() == 1) map.Set("hidden", Tensor(nullptr, DataType::kF32, {6}));
        return map;
      },
      All, All);
  EXPECT_TRUE(statuses[0].ok()) << statuses[0];
  EXPECT_TRUE(statuses[2].ok()) << statuses[2];
  for (const int rank : {1, 4}) {
    ExpectError(statuses[static_cast<size_t>(rank)], absl::StatusCode::kInvalidArgument,
                "has no memory");
  }
  for (const int rank : {3, 5}) {
    ExpectError(statuses[static_cast<size_t>(rank)], absl::StatusCode::kInvalidArgument,
                "did not receive its part");
  }
  ExpectPasses(All);
}

TEST_P(GatherMapTest, PartsOfDifferentTensorsAreNotMixed) {
  MakeStages(2);
  const std::vector<absl::Status> statuses = Pass(
      [](client::Group& group) {
        return TensorMap{{"t", Upload(group, Pattern(DataType::kF32, {2 + 2 * group.rank()}))}};
      },
      All, All);
  for (const int rank : {2, 3}) {
    ExpectError(statuses[static_cast<size_t>(rank)], absl::StatusCode::kInvalidArgument,
                "received parts of other tensors");
  }
  ExpectPasses(All);
}

TEST_P(GatherMapTest, ACheckFindsDifferences) {
  MakeStages(2);
  const auto checked = [](client::Group& stage) {
    MapGatherOptions options = All(stage);
    options.check = true;
    return options;
  };
  ExpectPasses(checked);
  // Also sends in parts the tensor that differs between ranks.
  const auto all = [&](client::Group& stage) {
    MapGatherOptions options = checked(stage);
    options.overrides.clear();
    return options;
  };
  for (const absl::Status& status : Pass(Activations, all, All)) {
    ExpectError(status, absl::StatusCode::kInvalidArgument, "the tensors to send in parts differ");
  }
  // A tensor without memory cannot even be checked.
  const auto bad = [](client::Group& group) {
    TensorMap map = Activations(group);
    if (group.rank() == 1) map.Set("hidden", Tensor(nullptr, DataType::kF32, {6}));
    return map;
  };
  for (const absl::Status& status : Pass(bad, checked, All)) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  }
  ExpectPasses(checked);
}

INSTANTIATE_TEST_SUITE_P(Forms, GatherMapTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
