// The contents of the journal, and the processes that may open it.
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/journal/record_codec.h"
#include "coordinator/journal/testing/sample_records.h"
#include "coordinator/journal/testing/sqlite_journal_test_base.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

using SqliteJournalTest = SqliteJournalTestBase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(SqliteJournalTest, StartsEmptyAtBootOne) {
  const JournalContents contents = Reopen();
  EXPECT_EQ(contents.boot, 1);
  EXPECT_THAT(contents.rows, IsEmpty());
  EXPECT_FALSE(journal_->keeps_nothing());
  EXPECT_STREQ(journal_->name(), "sqlite");
}

TEST_F(SqliteJournalTest, CountsEveryOpen) {
  for (int64_t boot = 1; boot <= 4; ++boot) EXPECT_EQ(Reopen().boot, boot);
}

TEST_F(SqliteJournalTest, ReadsBackEveryKind) {
  Reopen();
  std::vector<Record> records;
  int number = 0;
  for (RecordValue& value : SampleValues()) {
    const RecordKind kind = KindOf(value);
    // Names with every awkward byte, and empty ones.
    const std::string odd("\0\xff'", 3);
    GroupKey key{number % 2 == 0 ? "" : odd, number % 2 == 0 ? odd : ""};
    records.push_back(Record{std::move(key), kind, number % 2 == 0 ? "" : odd, std::move(value)});
    ++number;
  }
  ASSERT_TRUE(journal_->Append(records).ok());

  const JournalContents contents = Reopen();
  ASSERT_EQ(contents.rows.size(), records.size());
  for (const Record& record : records) {
    EXPECT_EQ(std::count_if(contents.rows.begin(), contents.rows.end(),
                            [&](const Record& row) { return SameRecord(row, record); }),
              1)
        << DescribeRow(record.key, record.kind, record.id);
  }
}

TEST_F(SqliteJournalTest, ReplacesARowOfTheSameName) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "1")}).ok());
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "2")}).ok());
  EXPECT_THAT(Keys(Reopen()), ElementsAre("g/a=2"));
}

TEST_F(SqliteJournalTest, DeletesOneRow) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "1"), SampleKey("g", "b", "2")}).ok());
  ASSERT_TRUE(journal_->Append({Delete("g", "a"), Delete("g", "never there")}).ok());
  EXPECT_THAT(Keys(Reopen()), ElementsAre("g/b=2"));
}

TEST_F(SqliteJournalTest, DeletesAKindOfOneGroupOnly) {
  Reopen();
  const Record other_kind{{"tenant", "g"}, RecordKind::kGroup, "", GroupRecord()};
  Record other_tenant = SampleKey("g", "a", "3");
  other_tenant.key.tenant = "other";
  ASSERT_TRUE(journal_
                  ->Append({SampleKey("g", "a", "1"), SampleKey("g", "b", "1"), other_kind,
                            SampleKey("h", "a", "2"), other_tenant})
                  .ok());
  ASSERT_TRUE(
      journal_->Append({Record{{"tenant", "g"}, RecordKind::kKey, "", std::nullopt, true}}).ok());
  const JournalContents contents = Reopen();
  EXPECT_THAT(Keys(contents), ElementsAre("g/a=3", "h/a=2"));
  EXPECT_EQ(contents.rows.size(), 3u);
}

TEST_F(SqliteJournalTest, AppliesABatchInItsOrder) {
  Reopen();
  const Record delete_all{{"tenant", "g"}, RecordKind::kKey, "", std::nullopt, true};
  ASSERT_TRUE(journal_
                  ->Append({SampleKey("g", "a", "1"), delete_all, SampleKey("g", "b", "1"),
                            SampleKey("g", "b", "2"), SampleKey("g", "c", "1"), Delete("g", "c"),
                            Delete("g", "d"), SampleKey("g", "d", "1")})
                  .ok());
  EXPECT_THAT(Keys(Reopen()), ElementsAre("g/b=2", "g/d=1"));
}

TEST_F(SqliteJournalTest, AppendsNothing) {
  Reopen();
  EXPECT_TRUE(journal_->Append({}).ok());
  EXPECT_THAT(Reopen().rows, IsEmpty());
}

TEST_F(SqliteJournalTest, AppliesNothingOfABatchWithAMistake) {
  Reopen();
  const Record mistaken{{"tenant", "g"}, RecordKind::kMember, "m", KeyRecord()};
  EXPECT_EQ(journal_->Append({SampleKey("g", "a", "1"), mistaken}).code(),
            absl::StatusCode::kInternal);
  ASSERT_TRUE(journal_->Append({SampleKey("g", "b", "1")}).ok());
  EXPECT_THAT(Keys(Reopen()), ElementsAre("g/b=1"));
}

TEST_F(SqliteJournalTest, KeepsALargeValue) {
  Reopen();
  std::string large(64 << 20, '\0');
  for (size_t i = 0; i < large.size(); i += 4093) large[i] = static_cast<char>(i / 4093);
  ASSERT_TRUE(journal_->Append({SampleKey("g", "large", large)}).ok());
  const JournalContents contents = Reopen();
  ASSERT_EQ(contents.rows.size(), 1u);
  EXPECT_TRUE(std::get<KeyRecord>(*contents.rows[0].value).value.bytes() == large);
}

TEST_F(SqliteJournalTest, KeepsTheLogBounded) {
  Reopen();
  for (int i = 0; i < 500; ++i) {
    ASSERT_TRUE(
        journal_->Append({SampleKey("g", "same", std::string(60000, static_cast<char>(i)))}).ok());
  }
  struct stat log;
  ASSERT_EQ(stat(absl::StrCat(path_, "-wal").c_str(), &log), 0);
  EXPECT_LT(log.st_size, 8 << 20);
  struct stat file;
  ASSERT_EQ(stat(path_.c_str(), &file), 0);
  EXPECT_LT(file.st_size, 1 << 20);
}

TEST_F(SqliteJournalTest, CreatesFilesThatOnlyTheOwnerReads) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "1")}).ok());
  for (const char* suffix : {"", "-wal"}) {
    struct stat file;
    ASSERT_EQ(stat(absl::StrCat(path_, suffix).c_str(), &file), 0) << suffix;
    EXPECT_EQ(file.st_mode & 0777, 0600u) << suffix;
  }
}

TEST_F(SqliteJournalTest, RefusesASecondOpenerInThisProcess) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "1")}).ok());
  for (int attempt = 0; attempt < 2; ++attempt) {
    const absl::Status status = SqliteJournal(path_).Open().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
    EXPECT_THAT(std::string(status.message()), HasSubstr("in use"));
  }
  // The first one is not disturbed, and keeps its lock.
  ASSERT_TRUE(journal_->Append({SampleKey("g", "b", "1")}).ok());
  EXPECT_EQ(SqliteJournal(path_).Open().status().code(), absl::StatusCode::kFailedPrecondition);
  const JournalContents contents = Reopen();
  EXPECT_EQ(contents.boot, 2);
  EXPECT_THAT(Keys(contents), ElementsAre("g/a=1", "g/b=1"));
}

TEST_F(SqliteJournalTest, RefusesASecondOpenerInAnotherProcess) {
  // The child is forked before this process touches SQLite, and tries when the parent asks.
  int go[2];
  ASSERT_EQ(pipe(go), 0);
  const pid_t child = fork();
  if (child == 0) {
    char byte;
    close(go[1]);
    if (read(go[0], &byte, 1) != 1) _exit(3);
    const absl::Status status = SqliteJournal(path_).Open().status();
    _exit(status.code() == absl::StatusCode::kFailedPrecondition ? 0 : 1);
  }
  close(go[0]);
  Reopen();
  ASSERT_EQ(write(go[1], "g", 1), 1);
  int exit_status = -1;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  close(go[1]);
  EXPECT_EQ(exit_status, 0);
  EXPECT_EQ(Reopen().boot, 2);
}

TEST_F(SqliteJournalTest, RefusesToOpenTwice) {
  Reopen();
  EXPECT_EQ(journal_->Open().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(journal_->Append({SampleKey("g", "a", "1")}).ok());
}

TEST_F(SqliteJournalTest, RefusesToAppendBeforeOpen) {
  SqliteJournal journal(path_);
  EXPECT_EQ(journal.Append({SampleKey("g", "a", "1")}).code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(SqliteJournalTest, NamesAMissingFolder) {
  const absl::Status status = SqliteJournal(folder_ + "/none/journal").Open().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(folder_ + "/none does not exist"));
}

TEST_F(SqliteJournalTest, RefusesAFolderAndAnEmptyPath) {
  EXPECT_EQ(SqliteJournal(folder_).Open().status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(SqliteJournal("").Open().status().code(), absl::StatusCode::kInvalidArgument);
}

// SQLite would take these for a database in memory.
TEST_F(SqliteJournalTest, TakesASpecialNameForAFile) {
  const int previous = open(".", O_RDONLY | O_DIRECTORY);
  ASSERT_EQ(chdir(folder_.c_str()), 0);
  for (const char* name : {":memory:", "file::memory:"}) {
    EXPECT_EQ(SqliteJournal(name).Open()->boot, 1);
    EXPECT_EQ(SqliteJournal(name).Open()->boot, 2);
    EXPECT_EQ(unlink(name), 0) << name;
  }
  ASSERT_EQ(fchdir(previous), 0);
  close(previous);
}

}  // namespace
}  // namespace cohort::coordinator
