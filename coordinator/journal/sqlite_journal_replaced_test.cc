// Another program removes, replaces or cuts the journal's files while the journal is open.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/journal/testing/sample_records.h"
#include "coordinator/journal/testing/sqlite_journal_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SqliteJournalReplacedTest : public SqliteJournalTestBase {
 protected:
  ~SqliteJournalReplacedTest() override {
    journal_.reset();
    std::filesystem::remove_all(Aside(""));
    std::filesystem::remove_all(Aside("-wal"));
  }

  void OpenWithOneRow() {
    Reopen();
    ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "before")}).ok());
  }
  std::string Of(const std::string& suffix) const { return path_ + suffix; }
  std::string Aside(const std::string& suffix) const { return path_ + ".aside" + suffix; }

  // Nothing is acknowledged from now on, whatever happens to the files later.
  void ExpectEnded(const std::string& suffix, const std::string& what) {
    const absl::Status status = journal_->Append({SampleKey("g", "b", "during")});
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(absl::StrCat("/cohort.journal", suffix, " ", what)));
    EXPECT_EQ(journal_->Append({SampleKey("g", "c", "after")}), status);
  }

  static std::string Read(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
};

TEST_F(SqliteJournalReplacedTest, NoticesThatTheFileIsRemoved) {
  OpenWithOneRow();
  ASSERT_EQ(unlink(path_.c_str()), 0);
  ExpectEnded("", "was removed");
}

TEST_F(SqliteJournalReplacedTest, NoticesThatTheFileIsMoved) {
  OpenWithOneRow();
  ASSERT_EQ(rename(path_.c_str(), Aside("").c_str()), 0);
  ExpectEnded("", "was removed or moved");
  // After the file was moved back, the fate of appends in between is still unknown.
  ASSERT_EQ(rename(Aside("").c_str(), path_.c_str()), 0);
  EXPECT_EQ(journal_->Append({SampleKey("g", "d", "later")}).code(), absl::StatusCode::kInternal);
}

TEST_F(SqliteJournalReplacedTest, NoticesAnotherFileUnderItsName) {
  OpenWithOneRow();
  std::filesystem::copy_file(path_, Aside(""));
  ASSERT_EQ(rename(Aside("").c_str(), path_.c_str()), 0);
  ExpectEnded("", "was replaced");
}

TEST_F(SqliteJournalReplacedTest, NoticesThatTheFileIsCut) {
  OpenWithOneRow();
  // The rows move from the log to the file, so that there is something to lose.
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "again")}).ok());
  ASSERT_EQ(truncate(path_.c_str(), 512), 0);
  ExpectEnded("", "was cut");
}

TEST_F(SqliteJournalReplacedTest, NoticesThatTheLogIsRemoved) {
  OpenWithOneRow();
  ASSERT_EQ(unlink(Of("-wal").c_str()), 0);
  ExpectEnded("-wal", "was removed");
  // The journal copies acknowledged records from the removed log to the file.
  EXPECT_THAT(Keys(Reopen()), testing::Contains("g/a=before"));
}

TEST_F(SqliteJournalReplacedTest, NoticesAnotherLogUnderItsName) {
  OpenWithOneRow();
  std::ofstream(Aside("-wal")) << "another program's";
  ASSERT_EQ(rename(Aside("-wal").c_str(), Of("-wal").c_str()), 0);
  ExpectEnded("-wal", "was replaced");
  journal_.reset();
  EXPECT_EQ(Read(Of("-wal")), "another program's");
}

// An operator puts a backup in place while the coordinator still runs.
TEST_F(SqliteJournalReplacedTest, LeavesABackupThatTookItsPlaceAlone) {
  OpenWithOneRow();
  std::filesystem::copy_file(path_, Aside(""));
  std::filesystem::copy_file(Of("-wal"), Aside("-wal"));
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "later")}).ok());
  ASSERT_EQ(rename(Aside("").c_str(), path_.c_str()), 0);
  ASSERT_EQ(rename(Aside("-wal").c_str(), Of("-wal").c_str()), 0);
  const std::string file = Read(path_);
  const std::string log = Read(Of("-wal"));
  ExpectEnded("", "was replaced");
  journal_.reset();
  EXPECT_EQ(Read(path_), file);
  EXPECT_EQ(Read(Of("-wal")), log);
  EXPECT_THAT(Keys(Reopen()), ElementsAre("g/a=before"));
}

TEST_F(SqliteJournalReplacedTest, AHardLinkOfABackupDisturbsNothing) {
  OpenWithOneRow();
  ASSERT_EQ(link(path_.c_str(), Aside("").c_str()), 0);
  EXPECT_TRUE(journal_->Append({SampleKey("g", "b", "more")}).ok());
}

// The log's index is in this process's memory: no third file can be removed.
TEST_F(SqliteJournalReplacedTest, KeepsNoIndexFile) {
  OpenWithOneRow();
  EXPECT_FALSE(std::filesystem::exists(Of("-shm")));
}

TEST_F(SqliteJournalReplacedTest, KeepsGoingWhileTheLogIsFoldedAndCut) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "large", std::string(40 << 20, 'x'))}).ok());
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(journal_->Append({SampleKey("g", "same", std::string(60000, 'y'))}).ok());
    ASSERT_TRUE(journal_->Append({Delete("g", i == 0 ? "large" : "same")}).ok());
  }
}

}  // namespace
}  // namespace cohort::coordinator
