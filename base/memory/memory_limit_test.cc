#include "base/memory/memory_limit.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace cohort {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

// A tree of files that stands for "/".
class MemoryLimitTest : public testing::Test {
 protected:
  MemoryLimitTest() {
    root_ = testing::TempDir() + "/memory_limit_" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
  }

  void Write(const std::string& path, const std::string& text) {
    const std::string whole = root_ + path;
    for (size_t i = 1; i < whole.size(); ++i) {
      if (whole[i] == '/') mkdir(whole.substr(0, i).c_str(), 0755);
    }
    std::ofstream(whole) << text;
  }

  std::string root_;
};

TEST_F(MemoryLimitTest, Version2TakesTheLowestOfTheCgroupAndItsParents) {
  Write("/proc/self/cgroup", "0::/pods/cohort\n");
  Write("/sys/fs/cgroup/pods/cohort/memory.max", "max\n");
  EXPECT_EQ(CgroupMemoryLimitBytes(root_), kNoLimit);
  Write("/sys/fs/cgroup/pods/memory.max", "268435456\n");
  EXPECT_EQ(CgroupMemoryLimitBytes(root_), 268435456);
  Write("/sys/fs/cgroup/pods/cohort/memory.max", "134217728\n");
  EXPECT_EQ(CgroupMemoryLimitBytes(root_), 134217728);
}

TEST_F(MemoryLimitTest, ANameMayHaveColons) {
  Write("/proc/self/cgroup", "0::/kubelet/cri-containerd:abc:def\n");
  Write("/sys/fs/cgroup/kubelet/cri-containerd:abc:def/memory.max", "134217728\n");
  EXPECT_EQ(CgroupMemoryLimitBytes(root_), 134217728);
}

TEST_F(MemoryLimitTest, AContainerSeesItsOwnCgroupAsTheTop) {
  Write("/proc/self/cgroup", "0::/kubepods/pod1/abc\n");
  Write("/sys/fs/cgroup/memory.max", "2147483648\n");
  EXPECT_EQ(CgroupMemoryLimitBytes(root_), 2147483648);
}

TEST_F(MemoryLimitTest, Version1) {
  Write("/proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/jobs/one\n0::/\n");
  Write("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  Write("/sys/fs/cgroup/memory/jobs/one/memory.limit_in_bytes", "1073741824\n");
  EXPECT_EQ(CgroupMemoryLimitBytes(root_), 1073741824);
}

TEST_F(MemoryLimitTest, MissingAndMalformedFilesAreNoLimit) {
  EXPECT_EQ(CgroupMemoryLimitBytes(root_), kNoLimit);
  Write("/proc/self/cgroup", "nonsense\n0::/a\n");
  Write("/sys/fs/cgroup/a/memory.max", "lots\n");
  EXPECT_EQ(CgroupMemoryLimitBytes(root_), kNoLimit);
}

TEST(MemoryLimit, TheLimitOfThisProcessFollowsItsResourceLimits) {
  const int64_t before = MemoryLimitBytes();
  ASSERT_GT(before, 0);
  rlimit old;
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &old), 0);
  rlimit lower = old;
  lower.rlim_cur = 512 << 20;
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &lower), 0);
  EXPECT_EQ(MemoryLimitBytes(), std::min<int64_t>(before, 512 << 20));
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &old), 0);
}

}  // namespace
}  // namespace cohort
