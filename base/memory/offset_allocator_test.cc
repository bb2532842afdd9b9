#include "base/memory/offset_allocator.h"

#include <iterator>
#include <map>
#include <optional>
#include <random>

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(OffsetAllocatorTest, GivesWhatFitsAtItsAlignment) {
  OffsetAllocator range(4096);
  EXPECT_EQ(range.Take(64, 64), 0u);
  EXPECT_EQ(range.Take(1024, 1024), 1024u);
  EXPECT_EQ(range.Take(64, 64), 64u) << "before the aligned one is room still";
  EXPECT_EQ(range.Take(2048, 2048), 2048u);
  EXPECT_EQ(range.Take(1024, 64), std::nullopt);
  EXPECT_EQ(range.in_use(), 64u + 1024 + 64 + 2048);
  EXPECT_EQ(range.Give(2048)->bytes, 2048u);
  EXPECT_FALSE(range.Give(2048).has_value()) << "not twice";
  EXPECT_EQ(range.Take(1024, 64), 2048u);
}

TEST(OffsetAllocatorTest, FreedRangesAreMerged) {
  std::mt19937 random(7);
  OffsetAllocator range(1 << 20);
  std::map<size_t, size_t> taken;
  for (int i = 0; i < 20000; ++i) {
    if (taken.empty() || random() % 2 == 0) {
      const size_t bytes = (random() % 64 + 1) * 64;
      const std::optional<size_t> at = range.Take(bytes, 64);
      if (!at.has_value()) continue;
      const auto next = taken.lower_bound(*at);
      EXPECT_TRUE(next == taken.end() || *at + bytes <= next->first) << i;
      if (next != taken.begin()) {
        const auto before = std::prev(next);
        EXPECT_LE(before->first + before->second, *at) << i;
      }
      taken[*at] = bytes;
    } else {
      const auto any = std::next(taken.begin(), static_cast<long>(random() % taken.size()));
      EXPECT_EQ(range.Give(any->first)->bytes, any->second);
      taken.erase(any);
    }
  }
  for (const auto& [at, bytes] : taken) range.Give(at);
  EXPECT_EQ(range.in_use(), 0u);
  EXPECT_EQ(range.Take(1 << 20, 64), 0u);
}

}  // namespace
}  // namespace cohort
