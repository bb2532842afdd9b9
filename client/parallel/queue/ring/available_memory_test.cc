#include "client/parallel/queue/ring/available_memory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::parallel {
namespace {

using ::testing::HasSubstr;

class AvailableMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string folder = absl::StrCat(::testing::TempDir(), "/room-XXXXXX");
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    root_ = folder + "/";
    Put("proc/meminfo", "MemTotal:  8000 kB\nMemFree: 1 kB\nMemAvailable:    4000 kB\n");
  }
  void Put(const std::string& path, const std::string& text) {
    const std::filesystem::path whole = root_ + path;
    std::filesystem::create_directories(whole.parent_path());
    std::ofstream(whole) << text;
  }
  std::string WhyNot(uint64_t bytes) {
    const absl::Status status = CheckAvailableMemory(bytes, root_);
    EXPECT_TRUE(status.ok() || status.code() == absl::StatusCode::kResourceExhausted) << status;
    return std::string(status.message());
  }

  std::string root_;
};

TEST_F(AvailableMemoryTest, TheMachineCounts) {
  EXPECT_EQ(WhyNot(4096000), "");
  EXPECT_EQ(WhyNot(4096001), "4096001 bytes of memory are needed, 4096000 are left by the machine");
}

TEST_F(AvailableMemoryTest, ParentsOfVersion2GroupsCount) {
  Put("proc/self/cgroup", "0::/pod/container\n");
  Put("sys/fs/cgroup/pod/container/memory.max", "max\n");
  Put("sys/fs/cgroup/pod/container/memory.current", "1000\n");
  Put("sys/fs/cgroup/pod/memory.max", "100000\n");
  Put("sys/fs/cgroup/pod/memory.current", "60000\n");
  Put("sys/fs/cgroup/pod/memory.stat", "anon 5\ninactive_file 10000\n");
  EXPECT_EQ(WhyNot(50000), "");
  EXPECT_THAT(WhyNot(50001), HasSubstr("50000 are left by the control group /pod, which may use"));
}

TEST_F(AvailableMemoryTest, GroupsOfVersion1Count) {
  Put("proc/self/cgroup", "5:cpu,memory:/job\n3:cpuset:/\n");
  Put("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "3000\n");
  Put("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "4000\n");
  EXPECT_THAT(WhyNot(1), HasSubstr("0 are left by the control group /job"));
}

TEST_F(AvailableMemoryTest, UnreadableFilesSetNoLimit) {
  root_ += "no-such-folder/";
  EXPECT_EQ(WhyNot(uint64_t{1} << 50), "");
}

TEST(AvailableMemory, HereIsRoomForAPage) { EXPECT_TRUE(CheckAvailableMemory(4096).ok()); }

}  // namespace
}  // namespace cohort::parallel
