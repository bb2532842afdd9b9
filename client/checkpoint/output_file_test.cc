#include "client/checkpoint/output_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::checkpoint {
namespace {

using ::testing::HasSubstr;

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

TEST(OutputFileTest, KeepsTheOldFileUntilCommit) {
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
  const absl::Status status = OutputFile::Create("/no-such-folder/model").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(std::string(status.message()).find("/no-such-folder/model"), std::string::npos);
}

TEST(OutputFileTest, AFullDiskIsResourceExhausted) {
  const std::string path = NewPath("full");
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  // A limit on the size of files stands for a full disk.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit small = before;
  small.rlim_cur = 4;
  setrlimit(RLIMIT_FSIZE, &small);
  const absl::Status status = (*file)->Append("bytes");
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

// Another user of the folder plants a link under the temporary name.
TEST(OutputFileTest, FollowsNoLinkAtItsTemporaryName) {
  const std::string path = NewPath("planted");
  const std::string victim = path + ".victim";
  std::ofstream(victim) << "precious";
  for (const std::string& suffix : {std::string(".tmp"), "." + std::to_string(getpid()) + ".tmp"}) {
    std::filesystem::create_symlink(victim, path + suffix);
  }
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Append("after").ok());
  EXPECT_EQ(Read(victim), "precious");
  auto other = OutputFile::Create(path);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE((*file)->temporary(), (*other)->temporary());
  // 128 random bits, as hexadecimal digits.
  const std::string name = (*file)->temporary();
  EXPECT_THAT(name, testing::MatchesRegex(".*/model\\.[0-9a-f]{32}\\.tmp"));
}

TEST(OutputFileTest, NewFilesTakeNothingOver) {
  const std::string folder = std::filesystem::path(NewPath("new")).parent_path();
  const UniqueFd fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY));
  std::ofstream(folder + "/victim") << "precious";
  std::filesystem::create_symlink("victim", folder + "/link");
  std::filesystem::create_symlink("missing", folder + "/dangling");
  for (const char* name : {"victim", "link", "dangling"}) {
    EXPECT_EQ(CreateNewFile(fd.get(), name).status().code(), absl::StatusCode::kAlreadyExists)
        << name;
  }
  EXPECT_EQ(Read(folder + "/victim"), "precious");
  EXPECT_FALSE(std::filesystem::exists(folder + "/missing"));
  EXPECT_TRUE(CreateNewFile(fd.get(), "fresh").ok());
}

void ExpectRefused(const std::string& path, const std::string& kind) {
  const absl::Status status = OutputFile::Create(path).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << path << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_THAT(std::string(status.message()), HasSubstr(kind));
}

TEST(OutputFileTest, ReplacesOnlyRegularFiles) {
  const std::string path = NewPath("kinds");
  ExpectRefused("/dev/null", "a device");
  ExpectRefused(std::filesystem::path(path).parent_path(), "a folder");
  for (const char* name : {"", ".", ".."}) {
    ExpectRefused(std::filesystem::path(path).parent_path() / name, "it names a folder");
  }
  ASSERT_EQ(mkfifo((path + ".fifo").c_str(), 0600), 0);
  ExpectRefused(path + ".fifo", "a special file");
  std::ofstream(path + ".target") << "before";
  std::filesystem::create_symlink(path + ".target", path + ".link");
  ExpectRefused(path + ".link", "a symbolic link");
  EXPECT_TRUE(OutputFile::Create(path + ".target").ok());
}

TEST(OutputFileTest, LooksAgainBeforeItReplaces) {
  const std::string path = NewPath("later");
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ((*file)->Commit().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(std::filesystem::is_fifo(path));
}

TEST(OutputFileTest, TakesTheLongestName) {
  const std::string path = NewPath("long") + std::string(250, 'x');
  auto file = OutputFile::Create(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->Commit().ok());
}

}  // namespace
}  // namespace cohort::checkpoint
