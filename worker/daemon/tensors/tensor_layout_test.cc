#include "worker/daemon/tensors/tensor_layout.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();

v1::TensorLayout Layout(DataType type, const std::vector<int64_t>& shape,
                        const std::vector<int64_t>& strides = {}) {
  v1::TensorLayout layout;
  layout.set_data_type(static_cast<int>(type));
  layout.mutable_shape()->Add(shape.begin(), shape.end());
  layout.mutable_strides()->Add(strides.begin(), strides.end());
  return layout;
}

void ExpectRefused(const v1::TensorLayout& layout, const std::string& why) {
  const absl::Status status = ReadLayout(layout).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

TEST(TensorLayoutTest, ReadsALayout) {
  const TensorLayout dense = ReadLayout(Layout(DataType::kF32, {3, 4})).value();
  EXPECT_TRUE(dense.contiguous);
  EXPECT_EQ(dense.bytes, 48);
  EXPECT_EQ(dense.highest, 11);
  const TensorLayout backwards = ReadLayout(Layout(DataType::kU8, {3, 4}, {-4, 1})).value();
  EXPECT_FALSE(backwards.contiguous);
  EXPECT_EQ(backwards.lowest, -8);
  EXPECT_EQ(backwards.highest, 3);
  const TensorLayout single = ReadLayout(Layout(DataType::kC128, {})).value();
  EXPECT_EQ(single.bytes, 16);
  const TensorLayout none = ReadLayout(Layout(DataType::kF64, {5, 0})).value();
  EXPECT_EQ(none.bytes, 0);
  EXPECT_EQ(none.highest, -1);
}

TEST(TensorLayoutTest, RejectsImpossibleLayouts) {
  ExpectRefused(Layout(static_cast<DataType>(0), {1}), "data type");
  ExpectRefused(Layout(static_cast<DataType>(99), {1}), "data type");
  ExpectRefused(Layout(DataType::kU8, {-1}), "negative");
  ExpectRefused(Layout(DataType::kU8, {0, -1}), "negative");
  ExpectRefused(Layout(DataType::kF64, {kHuge}), "it has more than");
  ExpectRefused(Layout(DataType::kU8, {int64_t{1} << 32, int64_t{1} << 32}), "it has more than");
  ExpectRefused(Layout(DataType::kU8, {0, int64_t{1} << 40, int64_t{1} << 40}), "it has more than");
  ExpectRefused(Layout(DataType::kU8, {2, 2}, {1}), "1 strides for 2");
  ExpectRefused(Layout(DataType::kU8, {3}, {kHuge}), "strides span");
  ExpectRefused(Layout(DataType::kU8, {3}, {std::numeric_limits<int64_t>::min()}), "strides span");
  ExpectRefused(Layout(DataType::kU8, {2, 2}, {kHuge - 1, kHuge - 1}), "strides span");
  ExpectRefused(Layout(DataType::kU8, std::vector<int64_t>(17, 1)), "17 dimensions");
}

TEST(TensorLayoutTest, ViewsLieWithinTheirMemory) {
  char memory[64];
  const auto view = [&](const v1::TensorLayout& layout, int64_t first) {
    return ViewOf(memory, sizeof(memory), ReadLayout(layout).value(), first, nullptr);
  };
  EXPECT_EQ(view(Layout(DataType::kF32, {16}), 0)->data(), memory);
  EXPECT_EQ(view(Layout(DataType::kF32, {4}), 12)->data(), memory + 48);
  EXPECT_EQ(view(Layout(DataType::kF32, {16}, {-1}), 15)->data(), memory + 60);
  EXPECT_TRUE(view(Layout(DataType::kF32, {0}), 16).ok());
  EXPECT_TRUE(view(Layout(DataType::kF32, {5}, {0}), 3).ok());
  for (const auto& [layout, first] : std::vector<std::pair<v1::TensorLayout, int64_t>>{
           {Layout(DataType::kF32, {17}), 0},
           {Layout(DataType::kF32, {16}), 1},
           {Layout(DataType::kF32, {1}), 16},
           {Layout(DataType::kF32, {1}), -1},
           {Layout(DataType::kF32, {1}), kHuge},
           {Layout(DataType::kF32, {0}), 17},
           {Layout(DataType::kF32, {16}, {-1}), 14},
           {Layout(DataType::kF32, {2}, {16}), 0},
           {Layout(DataType::kU8, {2}, {int64_t{1} << 61}), 0}}) {
    const absl::Status status = view(layout, first).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument)
        << layout.ShortDebugString() << " from " << first;
  }
}

}  // namespace
}  // namespace cohort::worker
