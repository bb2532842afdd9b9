#include "base/daemon/descriptor_table.h"

#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "gtest/gtest.h"

namespace cohort {
namespace {

// The size of the kernel's table of descriptors.
rlim_t TableSize() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "FDSize:") {
  }
  rlim_t size = 0;
  status >> size;
  return size;
}

TEST(DescriptorTableTest, HasRoomForAllDescriptorsThatTheProcessMayHave) {
  rlimit limit = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlim_t hard = limit.rlim_max;
  ASSERT_GT(hard, 1024u);
  EXPECT_LE(TableSize(), 1024u);
  MakeRoomForDescriptors();
  EXPECT_GE(TableSize(), std::min<rlim_t>(hard, 65536));
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  EXPECT_EQ(limit.rlim_cur, hard);
}

}  // namespace
}  // namespace cohort
