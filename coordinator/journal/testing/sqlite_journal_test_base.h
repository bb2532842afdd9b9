// A journal in a folder of its own, for tests.
#ifndef COHORT_COORDINATOR_JOURNAL_TESTING_SQLITE_JOURNAL_TEST_BASE_H_
#define COHORT_COORDINATOR_JOURNAL_TESTING_SQLITE_JOURNAL_TEST_BASE_H_

#include <sqlite3.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "coordinator/journal/sqlite_journal.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {

class SqliteJournalTestBase : public testing::Test {
 protected:
  SqliteJournalTestBase() {
    std::string pattern = absl::StrCat(testing::TempDir(), "/journal.XXXXXX");
    folder_ = mkdtemp(pattern.data());
    path_ = absl::StrCat(folder_, "/cohort.journal");
  }
  ~SqliteJournalTestBase() override {
    for (const char* suffix : {"", "-wal", "-shm", "-journal"}) {
      unlink(absl::StrCat(path_, suffix).c_str());
    }
    rmdir(folder_.c_str());
  }

  // Opens the file with a new journal, which the test then owns the lock through.
  JournalContents Reopen() {
    journal_.reset();
    journal_ = std::make_unique<SqliteJournal>(path_);
    absl::StatusOr<JournalContents> contents = journal_->Open();
    EXPECT_TRUE(contents.ok()) << contents.status();
    return contents.ok() ? *std::move(contents) : JournalContents();
  }
  absl::Status OpenStatus() {
    journal_.reset();
    return SqliteJournal(path_).Open().status();
  }

  // Changes the closed file behind the journal's back.
  void Execute(const std::string& sql) {
    journal_.reset();
    sqlite3* database = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &database), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(database, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_free(error);
    sqlite3_close(database);
  }

  // "group/id=value" of every stored key, in the order read.
  static std::vector<std::string> Keys(const JournalContents& contents) {
    std::vector<std::string> keys;
    for (const Record& row : contents.rows) {
      if (row.kind != RecordKind::kKey) continue;
      keys.push_back(absl::StrCat(row.key.group, "/", row.id, "=",
                                  std::get<KeyRecord>(*row.value).value.bytes()));
    }
    return keys;
  }

  static Record Delete(const std::string& group, const std::string& key) {
    return Record{{"tenant", group}, RecordKind::kKey, key, std::nullopt};
  }

  std::string folder_;
  std::string path_;
  std::unique_ptr<SqliteJournal> journal_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_JOURNAL_TESTING_SQLITE_JOURNAL_TEST_BASE_H_
