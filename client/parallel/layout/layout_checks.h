// Checks of layouts and of their errors, for tests.
#ifndef COHORT_CLIENT_PARALLEL_LAYOUT_LAYOUT_CHECKS_H_
#define COHORT_CLIENT_PARALLEL_LAYOUT_LAYOUT_CHECKS_H_

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/parallel/layout/layout.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {

inline Layout Get(absl::StatusOr<Layout> layout) {
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *std::move(layout);
}

inline RankLists ListsOf(const Layout& layout, GroupKind kind) {
  absl::StatusOr<RankLists> lists = layout.Lists(kind);
  EXPECT_TRUE(lists.ok()) << lists.status();
  return *std::move(lists);
}

inline void ExpectRefused(const absl::Status& status, const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  for (const std::string& word : words) {
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(word));
  }
}

// Checks that each rank is in one group of every kind, except for kinds with only some ranks.
inline void ExpectPartitions(const Layout& layout) {
  for (const GroupFamily& family : layout.families()) {
    if (family.kind.role == Role::kEmbedding || family.kind.role == Role::kPositionEmbedding) {
      continue;
    }
    RankList all;
    for (const RankList& list : family.lists) all.insert(all.end(), list.begin(), list.end());
    std::sort(all.begin(), all.end());
    ASSERT_EQ(all, ListsOf(layout, Role::kWorld).front()) << NameOf(family.kind);
  }
}

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_LAYOUT_LAYOUT_CHECKS_H_
