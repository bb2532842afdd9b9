// Notes about slices are checked before they are used.
#include "client/parallel/pipeline/tensor_slices.h"

#include <random>

#include "absl/strings/str_cat.h"
#include "base/testing/random_tensor.h"
#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

TEST(ScatterTest, DescribesHowATensorWasSliced) {
  EXPECT_EQ(EncodeSlices({0, {{1, {}}, {1, {}}}}), "");
  EXPECT_EQ(EncodeSlices({7, {{1, {}}, {1, {}}}}), "7");
  const Slices slices = {kMostNumber, {{1, {}}, {4, {3, 8}}, {2, {2}}}};
  const std::vector<TensorMeta> metas = {
      {DataType::kF32, {5, 5}}, {DataType::kF32, {6}}, {DataType::kU8, {1}}};
  const absl::StatusOr<Slices> read = DecodeSlices(EncodeSlices(slices), metas);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->number, kMostNumber);
  ASSERT_EQ(read->cuts.size(), 3u);
  EXPECT_EQ(read->cuts[0].parts, 1);
  EXPECT_EQ(read->cuts[1].parts, 4);
  EXPECT_EQ(read->cuts[1].shape, (Shape{3, 8}));
  EXPECT_EQ(read->cuts[2].shape, (Shape{2}));
  EXPECT_TRUE(DecodeSlices("", metas)->cuts.empty());
  EXPECT_TRUE(DecodeSlices("7", metas)->cuts.empty());
  EXPECT_EQ(DecodeSlices("7", {})->number, 7u);
}

TEST(ScatterTest, NoNoteDoesHarm) {
  const std::vector<TensorMeta> one = {{DataType::kF64, {6}}};
  for (const char* const cuts :
       {"4", "x:1", "0:3", "-2:12", "1:3", "4:3,9", "4:24,", "4:-24", "2:0,12", "4:", "4:3,8;1:",
        "4:9223372036854775807,9223372036854775807", "2000000000:6", ";", "4:3,8,1e3"}) {
    EXPECT_FALSE(DecodeSlices(absl::StrCat("1;", cuts), one).ok()) << cuts;
  }
  EXPECT_TRUE(DecodeSlices("1;4:3,8", one).ok());
  for (const char* const number : {"0", "-1", "x", "1 2", "2147483648", "99999999999", ";", "1;"}) {
    EXPECT_FALSE(DecodeSlices(number, one).ok()) << number;
  }
  // The slice has one dimension.
  EXPECT_FALSE(DecodeSlices("1;4:3,8", {{DataType::kF64, {2, 3}}}).ok());
  EXPECT_FALSE(DecodeSlices("1;4:3,8", {}).ok());
}

TEST(ScatterTest, SlicesAreOfTheElementsInTheirOrder) {
  client::LoneGroup group;
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const RandomTensor whole(DataType::kU16, {4, 3, 2}, random);
    std::string joined;
    for (int part = 0; part < 8; ++part) {
      const absl::StatusOr<Tensor> slice = SliceOf(group, whole.tensor(), 8, part, {});
      ASSERT_TRUE(slice.ok()) << slice.status();
      EXPECT_EQ(slice->shape(), (Shape{3}));
      joined += ElementsOf(*slice);
    }
    EXPECT_EQ(joined, ElementsOf(whole.tensor()));
    EXPECT_EQ(SliceOf(group, whole.tensor(), 5, 0, {}).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

// A group that records the options of its copies.
class CopyingGroup : public client::LoneGroup {
 public:
  std::vector<client::CallOptions> calls;

  absl::Status CopyAll(absl::Span<const client::TensorCopy> copies,
                       const client::CallOptions& call) override {
    calls.push_back(call);
    return LoneGroup::CopyAll(copies, call);
  }
};

TEST(ScatterTest, CopiesAreMadeAsTheCallSays) {
  CopyingGroup group;
  client::CallOptions call;
  call.timeout = absl::Seconds(7);
  call.stream = nullptr;
  const Tensor turned = Tensor::Zeros(DataType::kF32, {4, 6}).Permute({1, 0});
  ASSERT_TRUE(SliceOf(group, turned, 2, 1, call).ok());
  ASSERT_EQ(group.calls.size(), 1u);
  EXPECT_EQ(group.calls[0].timeout, call.timeout);
  EXPECT_TRUE(group.calls[0].stream.has_value());
}

}  // namespace
}  // namespace cohort::parallel
