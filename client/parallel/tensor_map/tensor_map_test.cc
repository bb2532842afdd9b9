#include "client/parallel/tensor_map/tensor_map.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

std::vector<std::string> KeysOf(const TensorMap& map) {
  std::vector<std::string> keys;
  for (const TensorMap::Entry& entry : map) keys.push_back(entry.key);
  return keys;
}

TEST(TensorMapTest, KeepsTheOrderInWhichKeysWereFirstSet) {
  TensorMap map = {{"b", 1}, {"a", 2}, {"", 3}, {"b", 4}};
  EXPECT_EQ(KeysOf(map), (std::vector<std::string>{"b", "a", ""}));
  EXPECT_EQ(*map.Get<int64_t>("b"), 4);
  map.Set("a", "now text");
  EXPECT_EQ(KeysOf(map), (std::vector<std::string>{"b", "a", ""}));
  EXPECT_EQ(*map.Get<std::string>("a"), "now text");
}

TEST(TensorMapTest, FindsAmongManyAsAmongFew) {
  TensorMap map;
  for (int i = 0; i < 100; ++i) {
    map.Set(absl::StrCat("key", i), i);
    map.Set(absl::StrCat("key", i / 2), -i);
  }
  EXPECT_EQ(map.size(), 100u);
  for (int i = 0; i < 100; ++i) {
    const int64_t expected = i < 50 ? -(2 * i + 1) : i;
    EXPECT_EQ(*map.Get<int64_t>(absl::StrCat("key", i)), expected) << i;
  }
  EXPECT_EQ(map.Find("key100"), nullptr);
}

TEST(TensorMapTest, ValuesKeepTheirKindAndContent) {
  EXPECT_EQ(Value().kind(), ValueKind::kNull);
  EXPECT_EQ(Value(true).kind(), ValueKind::kBool);
  EXPECT_EQ(Value(1).kind(), ValueKind::kInt);
  EXPECT_EQ(Value(uint32_t{1}).kind(), ValueKind::kInt);
  EXPECT_EQ(Value(1.0).kind(), ValueKind::kDouble);
  EXPECT_EQ(Value("text").kind(), ValueKind::kText);
  EXPECT_EQ(Value(std::string("text")).kind(), ValueKind::kText);
  EXPECT_EQ(Value(Bytes{"text"}).kind(), ValueKind::kBytes);
  EXPECT_EQ(Value(List{1, "two", Value()}).kind(), ValueKind::kList);
  EXPECT_EQ(Value(Tensor::Zeros(DataType::kBF16, {2})).kind(), ValueKind::kTensor);
  EXPECT_EQ(Value(TensorMap{{"inner", 1}}).kind(), ValueKind::kMap);
}

TEST(TensorMapTest, TensorsAndInnerMapsAreShared) {
  const Tensor tensor = Tensor::Zeros(DataType::kI32, {2, 3});
  const TensorMap map = {{"inner", TensorMap{{"tensor", tensor}}}};
  const TensorMap copy = map;
  const auto inner = copy.Get<TensorMap>("inner");
  ASSERT_TRUE(inner.ok()) << inner.status();
  EXPECT_EQ(inner->Get<Tensor>("tensor")->data(), tensor.data());
}

TEST(TensorMapTest, NamesAMissingKey) {
  const TensorMap map = {{"number", 1}};
  const absl::Status missing = map.Get<Tensor>("tensor").status();
  EXPECT_TRUE(absl::IsNotFound(missing)) << missing;
  EXPECT_TRUE(absl::StrContains(missing.message(), "'tensor'")) << missing;
  const absl::Status other = map.Get<Tensor>("number").status();
  EXPECT_TRUE(absl::IsInvalidArgument(other)) << other;
  EXPECT_TRUE(absl::StrContains(other.message(), "'number' holds a whole number")) << other;
}

TEST(TensorMapTest, DifferentWaysAreDifferentPaths) {
  EXPECT_NE((Path{"a/b"}), (Path{"a", "b"}));
  EXPECT_EQ(FormatPath({"a/b", "0"}), "'a/b'/'0'");
  EXPECT_EQ(FormatPath({"a", "b", "0"}), "'a'/'b'/'0'");
}

}  // namespace
}  // namespace cohort::parallel
