// Typed values between ranks, on groups of every form.
#include "client/parallel/tensor_map/objects.h"

#include <random>
#include <string>
#include <vector>

#include "absl/synchronization/notification.h"
#include "tests/parallel/testing/map_test_base.h"

namespace cohort::testing {
namespace {

using parallel::BroadcastObjectList;
using parallel::List;
using parallel::ReceiveObject;
using parallel::SendObject;
using parallel::Value;

class ObjectsTest : public MapTest {};

TEST_P(ObjectsTest, ListsReachAll) {
  std::mt19937 random(Seed());
  for (const int size : {1, 2, 5}) {
    MakeGroup(size);
    for (const int root : {0, size - 1}) {
      const List list = {1,
                         "two",
                         3.5,
                         parallel::Bytes{"four"},
                         List{Value(), true},
                         parallel::RandomMap(random, 3, nullptr)};
      ExpectOk(OnRanks([&](client::Group& group) {
        const bool is_root = group.rank() == root;
        const auto came = BroadcastObjectList(group, is_root ? &list : nullptr, {root});
        if (!came.ok()) return came.status();
        EXPECT_EQ(parallel::Describe(Value(*came)), parallel::Describe(Value(list)));
        return absl::OkStatus();
      }));
    }
  }
}

TEST_P(ObjectsTest, ARootWithoutAListFailsOnAllRanks) {
  MakeGroup(3);
  const List list = {1};
  const auto statuses = OnRanks([&](client::Group& group) {
    return BroadcastObjectList(group, group.rank() == 1 ? nullptr : &list, {1}).status();
  });
  for (const absl::Status& status : statuses) {
    ExpectError(status, absl::StatusCode::kInvalidArgument, "the tensor map of rank 1");
    EXPECT_EQ(status, statuses[0]);
  }
}

TEST_P(ObjectsTest, FromOneToAnother) {
  std::mt19937 random(Seed());
  MakeGroup(2);
  const Value value = parallel::RandomMap(random, 4, nullptr);
  // A strided tensor, one without elements, and values beside them.
  const Value tensors = List{Pattern(DataType::kF32, {3, 5}).Permute({1, 0}), "text",
                             Pattern(DataType::kBF16, {0, 4}), List{Pattern(DataType::kU8, {7})}};
  Value deep;
  for (int i = 0; i < 40; ++i) deep = List{deep};
  const Value large = List{Tensor::Zeros(DataType::kU8, {(int64_t{64} << 20) + 1})};
  ExpectOk(OnRanks([&](client::Group& group) {
    const int other = 1 - group.rank();
    for (const int peer : {-1, 2, group.rank()}) {
      EXPECT_EQ(SendObject(group, value, peer).code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(ReceiveObject(group, peer).status().code(), absl::StatusCode::kInvalidArgument);
    }
    // Both ranks send first, and neither waits.
    EXPECT_TRUE(SendObject(group, value, other).ok());
    EXPECT_TRUE(SendObject(group, tensors, other).ok());
    ExpectError(SendObject(group, deep, other), absl::StatusCode::kInvalidArgument, "nested");
    ExpectError(SendObject(group, large, other), absl::StatusCode::kResourceExhausted,
                "at most 67108864 travel by SendObject");
    EXPECT_TRUE(group.SendObject("not a value", other).ok());
    EXPECT_TRUE(SendObject(group, group.rank(), other).ok());

    const auto came = ReceiveObject(group, other);
    if (!came.ok()) return came.status();
    EXPECT_EQ(parallel::Describe(*came), parallel::Describe(value));
    const auto with_tensors = ReceiveObject(group, other);
    if (!with_tensors.ok()) return with_tensors.status();
    EXPECT_EQ(parallel::Describe(*with_tensors), parallel::Describe(tensors));
    ExpectError(ReceiveObject(group, other).status(), absl::StatusCode::kInvalidArgument, "nested");
    ExpectError(ReceiveObject(group, other).status(), absl::StatusCode::kResourceExhausted,
                "at most 67108864 travel by SendObject");
    EXPECT_FALSE(ReceiveObject(group, other).ok());
    const auto last = ReceiveObject(group, other);
    if (!last.ok()) return last.status();
    EXPECT_EQ(*last->As<int64_t>(), other);
    return absl::OkStatus();
  }));
}

TEST_P(ObjectsTest, ASendDoesNotWaitForItsReceiver) {
  constexpr int kObjects = 20;
  MakeGroup(2);
  absl::Notification all_sent;
  ExpectOk(OnRanks([&](client::Group& group) -> absl::Status {
    if (group.rank() == 0) {
      absl::Status status;
      for (int i = 0; i < kObjects; ++i) status.Update(SendObject(group, i, 1));
      all_sent.Notify();
      return status;
    }
    EXPECT_TRUE(all_sent.WaitForNotificationWithTimeout(absl::Seconds(60)));
    for (int i = 0; i < kObjects; ++i) {
      const auto came = ReceiveObject(group, 0);
      if (!came.ok()) return came.status();
      EXPECT_EQ(*came->As<int64_t>(), i);
    }
    return absl::OkStatus();
  }));
}

INSTANTIATE_TEST_SUITE_P(Forms, ObjectsTest, ::testing::ValuesIn(kForms), FormName);

}  // namespace
}  // namespace cohort::testing
