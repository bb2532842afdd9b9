#include "worker/communicator/host/reduce/last_level_cache.h"

#include <sys/stat.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

// As the kernel shows them.
std::string Caches(const std::string& name, const std::vector<std::string>& sizes) {
  const std::string folder = absl::StrCat(testing::TempDir(), "/", name);
  mkdir(folder.c_str(), 0700);
  for (size_t index = 0; index < sizes.size(); ++index) {
    const std::string cache = absl::StrCat(folder, "/index", index);
    mkdir(cache.c_str(), 0700);
    std::ofstream(cache + "/size") << sizes[index] << "\n";
  }
  return folder;
}

TEST(LastCacheTest, IsTheLargest) {
  EXPECT_EQ(LastLevelCacheBytes(Caches("usual", {"32K", "32K", "1024K", "32768K"})), 32 << 20);
  EXPECT_EQ(LastLevelCacheBytes(Caches("large", {"48K", "2M", "260M"})), 260 << 20);
  EXPECT_EQ(LastLevelCacheBytes(Caches("bytes", {"65536"})), 65536);
}

TEST(LastCacheTest, MayBeUnknown) {
  EXPECT_EQ(LastLevelCacheBytes("/no-such-folder"), 16 << 20);
  EXPECT_EQ(LastLevelCacheBytes(Caches("strange", {"much", "-4K", "9223372036854775807K"})),
            16 << 20);
}

TEST(LastCacheTest, TheCacheOfThisMachineHasAPlausibleSize) {
  EXPECT_GE(LastLevelCacheBytes(), 64 << 10);
  EXPECT_LE(LastLevelCacheBytes(), int64_t{4} << 30);
}

}  // namespace
}  // namespace cohort::worker
