// What a sender says of slices is looked at before it is believed.
#include "client/parallel/pipeline/scatter.h"

#include <random>

#include "base/testing/random_tensor.h"
#include "client/collective/testing/lone_group.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

TEST(ScatterTest, WhatWasCutIsTold) {
  EXPECT_EQ(EncodeCuts({{1, {}}, {1, {}}}), "");
  const std::vector<Cut> cuts = {{1, {}}, {4, {3, 8}}, {2, {2}}};
  const std::vector<TensorMeta> metas = {
      {DataType::kF32, {5, 5}}, {DataType::kF32, {6}}, {DataType::kU8, {1}}};
  const absl::StatusOr<std::vector<Cut>> read = DecodeCuts(EncodeCuts(cuts), metas);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->size(), 3u);
  EXPECT_EQ((*read)[0].parts, 1);
  EXPECT_EQ((*read)[1].parts, 4);
  EXPECT_EQ((*read)[1].shape, (Shape{3, 8}));
  EXPECT_EQ((*read)[2].shape, (Shape{2}));
  EXPECT_EQ(DecodeCuts("", metas)->size(), 3u);
}

TEST(ScatterTest, NoNoteDoesHarm) {
  const std::vector<TensorMeta> one = {{DataType::kF64, {6}}};
  for (const char* const note :
       {"4", "x:1", "0:3", "-2:12", "1:3", "4:3,9", "4:24,", "4:-24", "2:0,12", "4:", "4:3,8;1:",
        "4:9223372036854775807,9223372036854775807", "2000000000:6", ";", "4:3,8,1e3"}) {
    EXPECT_FALSE(DecodeCuts(note, one).ok()) << note;
  }
  EXPECT_TRUE(DecodeCuts("4:3,8", one).ok());
  // The slice has one dimension.
  EXPECT_FALSE(DecodeCuts("4:3,8", {{DataType::kF64, {2, 3}}}).ok());
  EXPECT_FALSE(DecodeCuts("4:3,8", {}).ok());
}

TEST(ScatterTest, SlicesAreOfTheElementsInTheirOrder) {
  client::LoneGroup group;
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    const RandomTensor whole(DataType::kU16, {4, 3, 2}, random);
    std::string joined;
    for (int part = 0; part < 8; ++part) {
      const absl::StatusOr<Tensor> slice = SliceOf(group, whole.tensor(), 8, part);
      ASSERT_TRUE(slice.ok()) << slice.status();
      EXPECT_EQ(slice->shape(), (Shape{3}));
      joined += ElementsOf(*slice);
    }
    EXPECT_EQ(joined, ElementsOf(whole.tensor()));
    EXPECT_EQ(SliceOf(group, whole.tensor(), 5, 0).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace cohort::parallel
