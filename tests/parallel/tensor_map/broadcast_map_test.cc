// A tensor map from one rank to all, on groups of every form.
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "client/collective/async_calls.h"
#include "client/parallel/tensor_map/broadcast.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "tests/parallel/testing/map_test_base.h"

namespace cohort::testing {
namespace {

using parallel::BroadcastTensorMap;
using parallel::Bytes;
using parallel::List;
using parallel::TensorMap;
using parallel::Value;
using ::testing::HasSubstr;

class BroadcastMapTest : public MapTest {
 protected:
  // Expects that every rank gets the map that `make` returned on the root.
  void ExpectBroadcast(int root, const std::function<TensorMap(client::Group&)>& make) {
    std::vector<TensorMap> maps(static_cast<size_t>(size()));
    ExpectOk(OnRanks([&](client::Group& group) {
      TensorMap own;
      const bool is_root = group.rank() == root;
      if (is_root) own = make(group);
      const std::string before = Text(own);
      absl::StatusOr<TensorMap> map = BroadcastTensorMap(group, is_root ? &own : nullptr, {root});
      if (!map.ok()) return map.status();
      EXPECT_TRUE(!is_root || Text(own) == before);
      maps[static_cast<size_t>(group.rank())] = *std::move(map);
      return absl::OkStatus();
    }));
    const std::string expected = Text(maps[static_cast<size_t>(root)]);
    for (int rank = 0; rank < size(); ++rank) {
      EXPECT_EQ(Text(maps[static_cast<size_t>(rank)]), expected) << "rank " << rank;
    }
  }

  // Expects that all ranks get the same error, and that the group works on.
  void ExpectRefused(absl::StatusCode code, const std::vector<std::string>& said,
                     const std::function<absl::Status(client::Group&)>& body) {
    const std::vector<absl::Status> statuses = OnRanks(body);
    for (const absl::Status& status : statuses) {
      EXPECT_EQ(status.code(), code) << status;
      EXPECT_EQ(status.message(), statuses[0].message());
    }
    for (const std::string& text : said) {
      EXPECT_THAT(std::string(statuses[0].message()), HasSubstr(text));
    }
    ExpectBroadcast(size() - 1, [](client::Group& group) {
      return TensorMap{{"large", Upload(group, Pattern(DataType::kF32, {9000}))}, {"n", 5}};
    });
  }
};

TEST_P(BroadcastMapTest, RandomMaps) {
  const uint32_t seed = Seed();
  std::mt19937 random(seed);
  for (int size = 1; size <= kMostRanks; ++size) {
    MakeGroup(size);
    for (int round = 0; round < 6; ++round) {
      const int root = static_cast<int>(random()) & 0x7FFFFFFF;
      ExpectBroadcast(root % size, [&](client::Group& group) { return RandomMap(group, random); });
    }
  }
}

TEST_P(BroadcastMapTest, AllTypesInAllSizes) {
  MakeGroup(3);
  ExpectBroadcast(1, [](client::Group& group) {
    TensorMap map;
    for (const DataType type : kDataTypes) {
      List list;
      for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{7}, Shape{40, 30}, Shape{60, 300}}) {
        list.push_back(Pattern(type, shape));
        list.push_back(Upload(group, Pattern(type, shape, 1)));
      }
      map.Set(NameOf(type), list);
    }
    return map;
  });
}

TEST_P(BroadcastMapTest, KeysThatOthersSplit) {
  MakeGroup(2);
  ExpectBroadcast(0, [](client::Group& group) {
    const Tensor one = Upload(group, Pattern(DataType::kI64, {3}));
    return TensorMap{{"a%b", one},
                     {"a", TensorMap{{"b", Value()}, {"%", 1}, {"", TensorMap{{"", one}}}}},
                     {"a/b", List{1.5, "text", Bytes{std::string("\0\xFF", 2)}, true, List{}}},
                     {"", TensorMap()}};
  });
}

TEST_P(BroadcastMapTest, NothingButPlainValues) {
  MakeGroup(4);
  ExpectBroadcast(2, [](client::Group&) { return TensorMap(); });
  ExpectBroadcast(2, [](client::Group&) { return TensorMap{{"text", std::string(100000, 'x')}}; });
}

TEST_P(BroadcastMapTest, ReceivedTensorsDoNotChange) {
  MakeGroup(2);
  ExpectOk(OnRanks([&](client::Group& group) {
    std::vector<TensorMap> came;
    std::vector<std::string> texts;
    for (int round = 0; round < 4; ++round) {
      TensorMap map;
      if (group.rank() == 0) {
        map.Set("small", Upload(group, Pattern(DataType::kU8, {10}, round)));
        map.Set("small too", Upload(group, Pattern(DataType::kU8, {20}, round)));
        map.Set("large", Upload(group, Pattern(DataType::kU8, {100000}, round)));
      }
      const auto result = BroadcastTensorMap(group, &map);
      if (!result.ok()) return result.status();
      came.push_back(*result);
      texts.push_back(Text(*result));
    }
    for (size_t i = 0; i < came.size(); ++i) {
      EXPECT_EQ(Text(came[i]), texts[i]) << i;
      EXPECT_TRUE(i == 0 || texts[i] != texts[i - 1]);
    }
    return absl::OkStatus();
  }));
}

TEST_P(BroadcastMapTest, TensorsLieWhereTheirReceiverIs) {
  MakeGroup(3);
  ExpectOk(OnRanks([&](client::Group& group) {
    const Tensor own = Upload(group, Pattern(DataType::kF32, {5, 4}));
    const TensorMap map = {{"there", own}, {"here", Pattern(DataType::kF32, {5, 4})}};
    const auto result = BroadcastTensorMap(group, &map);
    if (!result.ok()) return result.status();
    EXPECT_EQ(result->Get<Tensor>("there")->device(), own.device());
    EXPECT_EQ(result->Get<Tensor>("here")->device(), Device::Host());
    EXPECT_TRUE(result->Get<Tensor>("there")->contiguous());
    // The root keeps its own tensor.
    EXPECT_EQ(result->Get<Tensor>("there")->data() == own.data(), group.rank() == 0);
    return absl::OkStatus();
  }));
}

TEST_P(BroadcastMapTest, StartedOnesComeInOrder) {
  MakeGroup(3);
  ExpectOk(OnRanks([&](client::Group& group) {
    client::AsyncCalls calls(group);
    std::vector<parallel::Pending<TensorMap>> maps;
    for (int i = 0; i < 5; ++i) {
      TensorMap map;
      if (group.rank() == i % 3) {
        map = {{"i", i}, {"t", Upload(group, Pattern(DataType::kF32, {i * 3000}, i))}};
      }
      maps.push_back(StartBroadcastTensorMap(calls, std::move(map), {i % 3}));
    }
    for (int i = 5; i-- > 0;) {
      const auto map = maps[static_cast<size_t>(i)].Wait(absl::Seconds(60));
      if (!map.ok()) return map.status();
      EXPECT_EQ(*map->Get<int64_t>("i"), i);
      EXPECT_EQ(ElementsOf(Download(group, *map->Get<Tensor>("t"))),
                ElementsOf(Pattern(DataType::kF32, {i * 3000}, i)));
    }
    return absl::OkStatus();
  }));
}

TEST_P(BroadcastMapTest, MapsThatCannotGo) {
  for (const int size : {1, 2, 4}) {
    MakeGroup(size);
    const int root = size - 1;
    const std::string whose = absl::StrCat("the tensor map of rank ", root, " of group parallel-");
    const auto refused = [&](absl::StatusCode code, const std::string& why, const TensorMap* map) {
      ExpectRefused(code, {whose, why}, [&](client::Group& group) {
        return BroadcastTensorMap(group, group.rank() == root ? map : nullptr, {root}).status();
      });
    };
    refused(absl::StatusCode::kInvalidArgument, "the root gave no map", nullptr);
    const TensorMap without_memory = {{"a", List{1, Tensor(nullptr, DataType::kF32, {2})}}};
    refused(absl::StatusCode::kInvalidArgument, "entry 'a'/'1' f32 [2] has no memory",
            &without_memory);
    const TensorMap elsewhere = {
        {"a", Tensor(this, DataType::kU8, {2}, nullptr, Device::Cuda(99))}};
    refused(absl::StatusCode::kInvalidArgument, "entry 'a' is u8 [2] on cuda:99", &elsewhere);
    Value nested = 1;
    for (int i = 0; i < parallel::kMaxDepth; ++i) nested = List{nested};
    const TensorMap deep = {{"a", nested}};
    refused(absl::StatusCode::kInvalidArgument, "is nested deeper than 32", &deep);
    const TensorMap many = {{"a", List(size_t{parallel::kMaxValues})}};
    refused(absl::StatusCode::kResourceExhausted, "more than 1048576 values", &many);
  }
}

TEST_P(BroadcastMapTest, RanksThatGiveDifferentRoots) {
  for (const int size : {2, 4}) {
    MakeGroup(size);
    const auto with_root = [&](client::Group& group, int root) {
      // Large, so that a rank that went on alone would wait for the others.
      const TensorMap map = {{"large", Upload(group, Pattern(DataType::kF32, {9000}))}};
      return BroadcastTensorMap(group, &map, {root}).status();
    };
    for (const int wrong : {size, -1, -70000, 1 << 20}) {
      ExpectRefused(
          absl::StatusCode::kInvalidArgument,
          {"rank 1 says that the root is", absl::StrCat("is not in 0..", size - 1)},
          [&](client::Group& group) { return with_root(group, group.rank() == 1 ? wrong : 0); });
    }
    ExpectRefused(absl::StatusCode::kInvalidArgument,
                  {"rank 0 says that the root is 0, rank 1 that it is 1"},
                  [&](client::Group& group) { return with_root(group, group.rank() % 2); });
    ExpectRefused(absl::StatusCode::kInvalidArgument, {"root is 9"},
                  [&](client::Group& group) { return with_root(group, 9); });
  }
}

TEST_P(BroadcastMapTest, RanksThatDoSomethingElse) {
  MakeGroup(3);
  const TensorMap map = {{"large", Pattern(DataType::kF32, {9000})}};
  ExpectRefused(absl::StatusCode::kInvalidArgument, {"rank 2 all_reduce"},
                [&](client::Group& group) {
                  if (group.rank() != 2) return BroadcastTensorMap(group, &map).status();
                  const Tensor tensor = Upload(group, Pattern(DataType::kI32, {4}));
                  return group.AllReduce(tensor, tensor, {ReduceOp::kSum});
                });
}

TEST_P(BroadcastMapTest, ARankThatDoesNotComeIsNotWaitedForLong) {
  MakeGroup(3);
  const TensorMap map = {{"large", Pattern(DataType::kF32, {9000})}};
  client::CallOptions call;
  call.timeout = absl::Milliseconds(300);
  const std::vector<absl::Status> statuses = OnRanks([&](client::Group& group) {
    if (group.rank() == 1) return absl::OkStatus();
    return BroadcastTensorMap(group, &map, {0, call}).status();
  });
  for (const int rank : {0, 2}) {
    const absl::Status& status = statuses[static_cast<size_t>(rank)];
    EXPECT_TRUE(absl::IsDeadlineExceeded(status) || absl::IsAborted(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("rank 1"));
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, BroadcastMapTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
