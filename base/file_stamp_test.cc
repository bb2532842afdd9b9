#include "base/file_stamp.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

class FileStampTest : public ::testing::Test {
 protected:
  void Write(const std::string& text) { std::ofstream(path_, std::ios::trunc) << text; }

  const std::string path_ = ::testing::TempDir() + "/watched";

 private:
  void SetUp() override { unlink(path_.c_str()); }
};

TEST_F(FileStampTest, ReadsAFileAndSeesThatItChanges) {
  Write("one");
  const auto stamp = FileStamp(path_);
  ASSERT_TRUE(stamp.ok()) << stamp.status();
  EXPECT_EQ(*ReadWatchedFile(path_), "one");
  Write("three");
  EXPECT_NE(*FileStamp(path_), *stamp);
  EXPECT_EQ(*ReadWatchedFile(path_), "three");
  Write("");
  EXPECT_EQ(*ReadWatchedFile(path_), "");
}

TEST_F(FileStampTest, ALinkLeadsToItsFile) {
  const std::string target = path_ + "-target";
  std::ofstream(target, std::ios::trunc) << "text";
  ASSERT_EQ(symlink(target.c_str(), path_.c_str()), 0);
  EXPECT_EQ(*ReadWatchedFile(path_), "text");
  EXPECT_TRUE(FileStamp(path_).ok());
}

TEST_F(FileStampTest, OtherFilesThanSmallRegularOnesAreRefusedAtOnce) {
  const auto refused = [&](const char* why) {
    for (const absl::Status& status :
         {FileStamp(path_).status(), ReadWatchedFile(path_).status()}) {
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()), HasSubstr(why));
    }
    unlink(path_.c_str());
  };
  refused("No such file");
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  refused("not a regular file");
  for (const char* target : {"/dev/zero", "/dev/tty", "/proc/self", "."}) {
    ASSERT_EQ(symlink(target, path_.c_str()), 0);
    refused("");
  }
  ASSERT_EQ(symlink(path_.c_str(), path_.c_str()), 0);
  refused("Too many levels");
  Write("sparse");
  ASSERT_EQ(truncate(path_.c_str(), off_t{2} << 30), 0);
  refused("larger than 16777216 bytes");
}

// A file of /proc says that it is empty.
TEST_F(FileStampTest, AFileThatHasMoreThanItSaysIsRefused) {
  const absl::Status status = ReadWatchedFile("/proc/self/status").status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("grows"));
}

}  // namespace
}  // namespace cohort
