#include "base/rpc/token_file.h"

#include <sys/stat.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TokenFileTest : public ::testing::Test {
 protected:
  // The new file takes the place of the old one at once.
  void Write(const std::string& text) {
    std::ofstream(path_ + ".next", std::ios::binary) << text;
    ASSERT_EQ(rename((path_ + ".next").c_str(), path_.c_str()), 0);
  }
  std::string Error(const std::string& text) {
    Write(text);
    const absl::Status status = TokenFile::Load(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/token");
};

TEST_F(TokenFileTest, WhiteSpaceBehindTheTokenIsNotOfIt) {
  Write("aZ09-._~+/==\r\n\n");
  EXPECT_EQ((*TokenFile::Load(path_))->Current(absl::UnixEpoch()), "aZ09-._~+/==");
}

TEST_F(TokenFileTest, WrongFilesAreNamedWithoutTheirContent) {
  EXPECT_THAT(std::string(TokenFile::Load("/none").status().message()),
              HasSubstr("token file /none: No such file"));
  EXPECT_THAT(Error(""), HasSubstr("is empty"));
  EXPECT_THAT(Error(" \n"), HasSubstr("is empty"));
  EXPECT_THAT(Error(std::string(4097, 'a')), HasSubstr("4097 bytes, at most 4096"));
  for (const std::string& text :
       {std::string("secret two"), std::string("secret\0a", 8), std::string("secret\xc3\xa4")}) {
    const std::string error = Error(text);
    EXPECT_THAT(error, HasSubstr("byte 6 of the token"));
    EXPECT_THAT(error, Not(HasSubstr("secret")));
  }
}

TEST_F(TokenFileTest, ANewFileCountsAfterASecond) {
  Instant now = absl::UnixEpoch();
  Write("one");
  const auto file = *TokenFile::Load(path_);
  EXPECT_EQ(file->Current(now), "one");
  Write("second");
  EXPECT_EQ(file->Current(now + absl::Milliseconds(999)), "one");
  EXPECT_EQ(file->Current(now += absl::Seconds(1)), "second");
  Write("not a token");
  EXPECT_EQ(file->Current(now += absl::Seconds(1)), "second");
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  EXPECT_EQ(file->Current(now += absl::Seconds(1)), "second");
  Write("fourth");
  EXPECT_EQ(file->Current(now += absl::Seconds(1)), "fourth");
}

// The calls of a client look at the file.
TEST_F(TokenFileTest, APipeInItsPlaceStopsNoReader) {
  Instant now = absl::UnixEpoch();
  Write("one");
  const auto file = *TokenFile::Load(path_);
  ASSERT_EQ(std::remove(path_.c_str()), 0);
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(file->Current(now += absl::Seconds(1)), "one");
  EXPECT_THAT(std::string(TokenFile::Load(path_).status().message()),
              HasSubstr("is not a regular file"));
  Write("second");
  EXPECT_EQ(file->Current(now += absl::Seconds(1)), "second");
}

TEST_F(TokenFileTest, EachReaderGetsANewTokenOnce) {
  Instant now = absl::UnixEpoch();
  Write("one");
  const auto file = *TokenFile::Load(path_);
  int64_t first = 0;
  EXPECT_EQ(file->IfNew(now, &first), "one");
  EXPECT_EQ(file->IfNew(now, &first), std::nullopt);
  Write("second");
  EXPECT_EQ(file->IfNew(now += absl::Seconds(1), &first), "second");
  int64_t other = 0;
  EXPECT_EQ(file->IfNew(now, &other), "second");
  Write("second");
  EXPECT_EQ(file->IfNew(now += absl::Seconds(1), &first), std::nullopt);
  EXPECT_EQ(file->IfNew(now, &other), std::nullopt);
}

}  // namespace
}  // namespace cohort
