#include "client/checkpoint/output_file.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gtest/gtest.h"

namespace cohort::checkpoint {
namespace {

std::string NewPath(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  std::filesystem::create_directories(folder);
  return folder + "/model";
}

std::string Read(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TEST(OutputFileTest, IsThereOnceCommitted) {
  const std::string path = NewPath("committed");
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("one ").ok());
  ASSERT_TRUE((*file)->Append("two").ok());
  EXPECT_FALSE(std::filesystem::exists(path));
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(Read(path), "one two");
  EXPECT_FALSE(std::filesystem::exists((*file)->temporary()));
}

TEST(OutputFileTest, LeavesWhatWasThereUntilThen) {
  const std::string path = NewPath("kept");
  std::ofstream(path) << "before";
  std::string temporary;
  {
    auto file = OutputFile::Create(path);
    ASSERT_TRUE(file.ok()) << file.status();
    temporary = (*file)->temporary();
    ASSERT_TRUE((*file)->Append("after").ok());
    EXPECT_EQ(Read(path), "before");
  }
  EXPECT_EQ(Read(path), "before");
  EXPECT_FALSE(std::filesystem::exists(temporary));
}

TEST(OutputFileTest, ErrorsNameTheFile) {
  const absl::Status status = OutputFile::Create("/nowhere/model").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find("/nowhere/model"), std::string::npos);
}

TEST(OutputFileTest, AFullDiskIsResourceExhausted) {
  if (access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full here";
  // A device cannot be made beside itself: a link leads there.
  const std::string path = NewPath("full");
  const std::string temporary = path + "." + std::to_string(getpid()) + ".tmp";
  std::filesystem::create_symlink("/dev/full", temporary);
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Append("bytes").code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace cohort::checkpoint
