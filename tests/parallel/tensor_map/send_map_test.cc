// A tensor map from one rank to another, on groups of every form.
#include <functional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "client/collective/async_calls.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "client/parallel/tensor_map/send_receive.h"
#include "tests/parallel/testing/map_test_base.h"

namespace cohort::testing {
namespace {

using parallel::List;
using parallel::Messages;
using parallel::ReceiveTensorMap;
using parallel::SendTensorMap;
using parallel::TensorMap;
using parallel::Value;
using ::testing::HasSubstr;

// So large that its messages wait for their receiver.
constexpr int64_t kLarge = 300000;

class SendMapTest : public MapTest {
 protected:
  // Expects that the map of `make` arrives when rank 0 sends it to rank 1.
  void ExpectArrives(const std::function<TensorMap(client::Group&)>& make) {
    std::string sent;
    std::string received;
    ExpectOk(OnRanks([&](client::Group& group) {
      Messages messages(group);
      if (group.rank() == 0) {
        const TensorMap map = make(group);
        sent = Text(map);
        return SendTensorMap(messages, map, {1});
      }
      if (group.rank() != 1) return absl::OkStatus();
      const auto map = ReceiveTensorMap(messages, {0});
      if (map.ok()) received = Text(*map);
      return map.status();
    }));
    EXPECT_EQ(received, sent);
  }
};

TEST_P(SendMapTest, RandomMapsRoundTheRing) {
  std::mt19937 random(Seed());
  for (int size = 2; size <= kMostRanks; ++size) {
    MakeGroup(size);
    std::vector<uint32_t> seeds;
    for (int rank = 0; rank < size; ++rank) seeds.push_back(random());
    std::vector<std::string> sent(static_cast<size_t>(size));
    std::vector<std::string> received(static_cast<size_t>(size));
    ExpectOk(OnRanks([&](client::Group& group) {
      const auto rank = static_cast<size_t>(group.rank());
      std::mt19937 own(seeds[rank]);
      Messages messages(group);
      for (int round = 0; round < 5; ++round) {
        const TensorMap map = RandomMap(group, own);
        sent[rank] += Text(map);
        // The default peers are the next and the previous rank.
        const auto send = [&] { return SendTensorMap(messages, map); };
        if (rank % 2 == 0) {
          if (const absl::Status status = send(); !status.ok()) return status;
        }
        const auto came = ReceiveTensorMap(messages);
        if (!came.ok()) return came.status();
        received[rank] += Text(*came);
        if (rank % 2 == 1) {
          if (const absl::Status status = send(); !status.ok()) return status;
        }
      }
      return absl::OkStatus();
    }));
    for (size_t rank = 0; rank < sent.size(); ++rank) {
      EXPECT_EQ(received[(rank + 1) % sent.size()], sent[rank])
          << "rank " << rank << " of " << size;
    }
  }
}

TEST_P(SendMapTest, AllTypesInAllSizes) {
  MakeGroup(2);
  ExpectArrives([](client::Group& group) {
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
  ExpectArrives([](client::Group&) { return TensorMap(); });
  ExpectArrives([](client::Group&) { return TensorMap{{"text", std::string(100000, 'x')}}; });
}

TEST_P(SendMapTest, TensorsArriveInTheReceiversMemoryAndDoNotChange) {
  MakeGroup(2);
  ExpectOk(OnRanks([&](client::Group& group) {
    Messages messages(group);
    const Tensor own = Upload(group, Pattern(DataType::kF32, {5, 4}));
    std::vector<TensorMap> came;
    std::vector<std::string> texts;
    for (int round = 0; round < 3; ++round) {
      if (group.rank() == 0) {
        const TensorMap map = {{"there", Upload(group, Pattern(DataType::kF32, {5, 4}, round))},
                               {"large", Upload(group, Pattern(DataType::kU8, {kLarge}, round))},
                               {"here", Pattern(DataType::kF32, {5, 4}, round)}};
        if (const auto status = SendTensorMap(messages, map); !status.ok()) return status;
        continue;
      }
      const auto map = ReceiveTensorMap(messages);
      if (!map.ok()) return map.status();
      EXPECT_EQ(map->Get<Tensor>("there")->device(), own.device());
      EXPECT_EQ(map->Get<Tensor>("here")->device(), Device::Host());
      EXPECT_TRUE(map->Get<Tensor>("there")->contiguous());
      came.push_back(*map);
      texts.push_back(Text(*map));
    }
    for (size_t i = 0; i < came.size(); ++i) EXPECT_EQ(Text(came[i]), texts[i]) << i;
    return absl::OkStatus();
  }));
}

TEST_P(SendMapTest, AnInvalidMapFailsOnBothRanksAndTheNextOneArrives) {
  for (const int size : {2, 4}) {
    MakeGroup(size);
    Value nested = 1;
    for (int i = 0; i < parallel::kMaxDepth; ++i) nested = List{nested};
    const int number = 5;
    const TensorMap elsewhere = {
        {"a", Tensor(const_cast<int*>(&number), DataType::kU8, {2}, nullptr, Device::Cuda(99))}};
    const std::vector<std::pair<TensorMap, std::string>> cases = {
        {{{"a", List{1, Tensor(nullptr, DataType::kF32, {2})}}},
         "entry 'a'/'1' f32 [2] has no memory"},
        {{{"a", nested}}, "is nested deeper than 32"},
        {elsewhere, "entry 'a' is u8 [2] on cuda:99"},
    };
    for (const auto& [map, why] : cases) {
      const std::vector<absl::Status> statuses = OnRanks([&, &bad = map](client::Group& group) {
        Messages messages(group);
        if (group.rank() == 1) return SendTensorMap(messages, bad, {0});
        return group.rank() == 0 ? ReceiveTensorMap(messages, {1}).status() : absl::OkStatus();
      });
      ExpectError(statuses[1], absl::StatusCode::kInvalidArgument, why);
      ExpectError(statuses[0], absl::StatusCode::kInvalidArgument, why);
      ExpectError(statuses[0], absl::StatusCode::kInvalidArgument, "rank 1");
      ExpectArrives([](client::Group& group) {
        return TensorMap{{"large", Upload(group, Pattern(DataType::kU8, {kLarge}))}};
      });
    }
  }
}

TEST_P(SendMapTest, OtherMessagesAreRejectedAndTheNextMapArrives) {
  MakeGroup(2);
  std::vector<absl::Status> refused;
  ExpectOk(OnRanks([&](client::Group& group) {
    Messages messages(group);
    const TensorMap good = {{"n", 7}};
    const std::vector<std::string> notes = {"", "text", std::string("\1\1", 2),
                                            std::string("\1\1\1t\7\1\0\1\0", 9)};
    for (const std::string& note : notes) {
      if (group.rank() == 0) {
        // The sender gets the error only if it waits, as on a GPU.
        messages
            .Send(1, parallel::kTensorMapChannel,
                  {note, {Upload(group, Pattern(DataType::kF32, {3}))}})
            .IgnoreError();
        const absl::Status status = SendTensorMap(messages, good);
        if (!status.ok()) return status;
        continue;
      }
      refused.push_back(ReceiveTensorMap(messages).status());
      const auto map = ReceiveTensorMap(messages);
      if (!map.ok()) return map.status();
      EXPECT_EQ(*map->Get<int64_t>("n"), 7);
    }
    return absl::OkStatus();
  }));
  ASSERT_EQ(refused.size(), 4u);
  for (const absl::Status& status : refused) {
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), HasSubstr("the tensor map of rank 0"));
  }
}

TEST_P(SendMapTest, InvalidPeers) {
  MakeGroup(1);
  const std::vector<absl::Status> alone = OnRanks([&](client::Group& group) {
    Messages messages(group);
    ExpectError(ReceiveTensorMap(messages).status(), absl::StatusCode::kFailedPrecondition,
                "one rank alone");
    return SendTensorMap(messages, {});
  });
  ExpectError(alone[0], absl::StatusCode::kFailedPrecondition, "one rank alone");

  for (const int size : {2, 4}) {
    MakeGroup(size);
    OnRanks([&](client::Group& group) {
      Messages messages(group);
      for (const int peer : {-1, size, group.rank()}) {
        EXPECT_EQ(SendTensorMap(messages, {}, {peer}).code(), absl::StatusCode::kInvalidArgument);
        EXPECT_EQ(ReceiveTensorMap(messages, {peer}).status().code(),
                  absl::StatusCode::kInvalidArgument);
      }
      return absl::OkStatus();
    });
    ExpectArrives([](client::Group&) { return TensorMap{{"n", 1}}; });
  }
}

TEST_P(SendMapTest, StartedOnesArriveInOrder) {
  constexpr int kMaps = 6;
  MakeGroup(2);
  ExpectOk(OnRanks([&](client::Group& group) {
    Messages messages(group);
    client::AsyncCalls calls(group);
    if (group.rank() == 0) {
      std::vector<client::PendingCall> sends;
      for (int i = 0; i < kMaps; ++i) {
        // The map is destroyed here before it has been sent.
        const TensorMap map = {{absl::StrCat("key", i), i},
                               {"t", Upload(group, Pattern(DataType::kU8, {1000 * i, 60}, i))}};
        sends.push_back(StartSendTensorMap(calls, messages, map));
      }
      absl::Status status;
      for (const client::PendingCall& send : sends) status.Update(send.Wait(absl::Seconds(60)));
      return status;
    }
    std::vector<parallel::Pending<TensorMap>> maps;
    for (int i = 0; i < kMaps; ++i) maps.push_back(StartReceiveTensorMap(calls, messages));
    for (int i = kMaps; i-- > 0;) {
      const auto map = maps[static_cast<size_t>(i)].Wait(absl::Seconds(60));
      if (!map.ok()) return map.status();
      EXPECT_EQ(*map->Get<int64_t>(absl::StrCat("key", i)), i);
      EXPECT_EQ(ElementsOf(Download(group, *map->Get<Tensor>("t"))),
                ElementsOf(Pattern(DataType::kU8, {1000 * i, 60}, i)));
      EXPECT_TRUE(maps[static_cast<size_t>(i)].Wait().ok());
    }
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, SendMapTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
