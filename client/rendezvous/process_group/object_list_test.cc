#include "client/rendezvous/process_group/object_list.h"

#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::client {
namespace {

using Sizes = std::vector<int64_t>;
using testing::ElementsAre;

TEST(ObjectListTest, CutsABlock) {
  const auto list = ObjectList::Cut("abbc", Sizes{1, 0, 2, 1});
  ASSERT_TRUE(list.ok());
  EXPECT_THAT(*list, ElementsAre("a", "", "bb", "c"));
  EXPECT_EQ((*list)[2], "bb");
  EXPECT_THAT(list->ToStrings(), ElementsAre("a", "", "bb", "c"));
  EXPECT_TRUE(ObjectList::Cut("", Sizes{}).ok());
  EXPECT_EQ(ObjectList::Cut("", Sizes{0, 0})->size(), 2);
}

TEST(ObjectListTest, RefusesSizesThatDoNotAddUp) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const Sizes& sizes : {Sizes{}, Sizes{2}, Sizes{4}, Sizes{-1, 4}, Sizes{1, kMost}, Sizes{3, 1}}) {
    EXPECT_EQ(ObjectList::Cut("abc", sizes).status().code(), absl::StatusCode::kDataLoss);
  }
}

// Short blocks, too: moving a short string moves its characters.
TEST(ObjectListTest, ViewsOutliveTheListTheyCameFrom) {
  ObjectList kept;
  {
    ObjectList first(std::vector<std::string>{"a", "b"});
    const ObjectList copy = first;
    kept = std::move(first);
    EXPECT_EQ(copy[0].data(), kept[0].data());
  }
  EXPECT_THAT(kept, ElementsAre("a", "b"));
}

}  // namespace
}  // namespace cohort::client
