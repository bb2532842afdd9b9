// Objects with tensors as bytes: they arrive as sent, and no bytes do harm. Between ranks of every
// form: tests/parallel/tensor_map/objects_test.cc.
#include "client/parallel/tensor_map/objects.h"

#include <deque>
#include <string>

#include "client/collective/testing/lone_group.h"
#include "client/parallel/tensor_map/testing/random_map.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::HasSubstr;

// Rank 0 of two, and both ends of the objects between them.
class TwoRanks : public client::LoneGroup {
 public:
  std::deque<std::string> objects;

  int size() const override { return 2; }
  absl::Status SendObject(absl::string_view object, int, const client::CallOptions&) override {
    objects.emplace_back(object);
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReceiveObject(int, const client::CallOptions&) override {
    if (objects.empty()) return absl::DeadlineExceededError("none came");
    std::string object = objects.front();
    objects.pop_front();
    return object;
  }
};

Tensor Counting(DataType type, const Shape& shape) {
  const Tensor tensor = Tensor::Zeros(type, shape);
  for (int64_t i = 0; i < tensor.bytes(); ++i) {
    static_cast<unsigned char*>(tensor.data())[i] = static_cast<unsigned char>(i * 7 + 1);
  }
  return tensor;
}

Value Sample() {
  return List{Counting(DataType::kF32, {3, 5}).Permute({1, 0}), "text",
              Tensor::Zeros(DataType::kBF16, {0, 4}),
              TensorMap{{"bytes", Counting(DataType::kU8, {7})}, {"number", 5}}};
}

TEST(ObjectsTest, TensorsComeAsTheyWereSent) {
  TwoRanks group;
  const Value value = Sample();
  ASSERT_TRUE(SendObject(group, value, 1).ok());
  const absl::StatusOr<Value> came = ReceiveObject(group, 1);
  ASSERT_TRUE(came.ok()) << came.status();
  EXPECT_EQ(Describe(*came), Describe(value));
  const Tensor& tensor = *(*came->As<List>())[0].As<Tensor>();
  EXPECT_TRUE(tensor.contiguous());
  EXPECT_EQ(tensor.shape(), (Shape{5, 3}));
}

TEST(ObjectsTest, ATensorAloneIsAnObject) {
  TwoRanks group;
  ASSERT_TRUE(SendObject(group, Counting(DataType::kI64, {4}), 1).ok());
  const absl::StatusOr<Value> came = ReceiveObject(group, 1);
  ASSERT_TRUE(came.ok()) << came.status();
  EXPECT_EQ(Describe(*came), Describe(Value(Counting(DataType::kI64, {4}))));
}

TEST(ObjectsTest, TheMostThatTravelsIsNamedToBoth) {
  TwoRanks group;
  const Value large = Tensor::Zeros(DataType::kU8, {(int64_t{64} << 20) + 1});
  for (const absl::Status& status :
       {SendObject(group, large, 1), ReceiveObject(group, 1).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("at most 67108864 travel by SendObject"));
  }
}

TEST(ObjectsTest, HostileBytesAreRejected) {
  TwoRanks group;
  ASSERT_TRUE(SendObject(group, Sample(), 1).ok());
  const std::string object = group.objects.front();
  group.objects.clear();
  for (size_t size = 0; size < object.size(); ++size) {
    group.objects.push_back(object.substr(0, size));
    EXPECT_FALSE(ReceiveObject(group, 1).ok()) << size;
  }
  group.objects.push_back(object + "x");
  EXPECT_FALSE(ReceiveObject(group, 1).ok());
  for (size_t i = 0; i < object.size() * 8; ++i) {
    std::string flipped = object;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ (1 << (i % 8)));
    group.objects.push_back(flipped);
    ReceiveObject(group, 1).status().IgnoreError();  // an error or a value
  }
}

}  // namespace
}  // namespace cohort::parallel
