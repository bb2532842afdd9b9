// Files that are not as they should be, disks that are full, and syncs that fail.
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
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

using SqliteJournalDamageTest = SqliteJournalTestBase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST_F(SqliteJournalDamageTest, RefusesANewerFormat) {
  Reopen();
  Execute(absl::StrCat("UPDATE meta SET value = ", SqliteJournal::kFormatVersion + 1,
                       " WHERE key = 'format_version'"));
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("newer program"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  Execute(absl::StrCat("UPDATE meta SET value = ", SqliteJournal::kFormatVersion,
                       " WHERE key = 'format_version'"));
  EXPECT_EQ(Reopen().boot, 2);  // the refused start does not count
}

TEST_F(SqliteJournalDamageTest, RefusesAnotherProgramsFile) {
  Execute("CREATE TABLE songs (title TEXT)");
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another program"));
}

TEST_F(SqliteJournalDamageTest, RefusesAFileThatIsNoDatabase) {
  std::ofstream(path_) << std::string(5000, 'x');
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

TEST_F(SqliteJournalDamageTest, NamesADamagedRow) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "1"), SampleKey("g", "b", "2")}).ok());
  Execute("UPDATE rows SET value = x'00' || value WHERE id = CAST('b' AS BLOB)");
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("tenant \"tenant\" group \"g\" kind key (6) id \"b\""));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

// Each change leaves a row that decodes, under a name of another row.
TEST_F(SqliteJournalDamageTest, ChecksumsCoverTheWholeName) {
  for (const char* change : {
           "id = CAST('c' AS BLOB)",
           "tenant = CAST('tenanT' AS BLOB)",
           "grp = CAST('h' AS BLOB)",
           "kind = 7",
           // The same bytes one behind the other, cut elsewhere.
           "tenant = CAST('tenan' AS BLOB), grp = CAST('tg' AS BLOB)",
           "grp = CAST('' AS BLOB), id = CAST('ga' AS BLOB)",
           "id = CAST('' AS BLOB), value = CAST('a' AS BLOB) || value",
       }) {
    journal_.reset();
    unlink(path_.c_str());
    Reopen();
    ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "1")}).ok());
    Execute(absl::StrCat("UPDATE rows SET ", change));
    const absl::Status status = OpenStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << change;
    EXPECT_THAT(std::string(status.message()), HasSubstr("its checksum does not match")) << change;
  }
}

// Sequences and revisions of a boot begin at (boot - 1) << 32: a count that goes back repeats them.
TEST_F(SqliteJournalDamageTest, RefusesABootCountThatIsNotTheOneWritten) {
  Reopen();
  Reopen();
  Reopen();
  for (const char* change :
       {"value = 0", "value = 1", "value = 2", "value = 4", "value = -1", "value = 2147483648",
        "value = 9223372036854775807", "value = 'three'", "value = x'03'"}) {
    Execute(absl::StrCat("UPDATE meta SET ", change, " WHERE key = 'boot'"));
    const absl::Status status = OpenStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << change << ": " << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_)) << change;
    EXPECT_THAT(std::string(status.message()), HasSubstr("meta.boot")) << change;
  }
  Execute("UPDATE meta SET value = 3 WHERE key = 'boot'");
  EXPECT_EQ(Reopen().boot, 4);
}

TEST_F(SqliteJournalDamageTest, RefusesABootChecksumThatIsGone) {
  Reopen();
  Execute("DELETE FROM meta WHERE key = 'boot_checksum'");
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("meta.boot_checksum"));
}

// The file as format 1 had it: without a checksum of the boot count.
class SqliteJournalOldFormatTest : public SqliteJournalTestBase {
 protected:
  void MakeOldFile(const std::string& boot) {
    Reopen();
    ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "1")}).ok());
    Execute(absl::StrCat("DELETE FROM meta WHERE key = 'boot_checksum';",
                         "UPDATE meta SET value = 1 WHERE key = 'format_version';",
                         "UPDATE meta SET value = ", boot, " WHERE key = 'boot'"));
  }
};

TEST_F(SqliteJournalOldFormatTest, IsReadAndGetsAChecksum) {
  MakeOldFile("41");
  const JournalContents contents = Reopen();
  EXPECT_EQ(contents.boot, 42);
  EXPECT_THAT(Keys(contents), ElementsAre("g/a=1"));
  EXPECT_EQ(Reopen().boot, 43);
  Execute("UPDATE meta SET value = 42 WHERE key = 'boot'");
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SqliteJournalOldFormatTest, IsRefusedWithABootCountOutOfRange) {
  for (const char* boot : {"0", "-7", "2147483648", "4294967296", "'many'"}) {
    journal_.reset();
    unlink(path_.c_str());
    MakeOldFile(boot);
    const absl::Status status = OpenStatus();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << boot;
    EXPECT_THAT(std::string(status.message()), HasSubstr(path_)) << boot;
    EXPECT_THAT(std::string(status.message()), HasSubstr("meta.boot is ")) << boot;
  }
}

// A damaged format number must not turn the check off.
TEST_F(SqliteJournalOldFormatTest, HasNoChecksum) {
  Reopen();
  Execute("UPDATE meta SET value = 1 WHERE key = 'format_version'");
  const absl::Status status = OpenStatus();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(status.message()), HasSubstr("meta.format_version"));
}

// Drops the capabilities with which a thread of root can write everywhere.
void DropCapabilities() {
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  ASSERT_EQ(syscall(SYS_capset, &header, none), 0) << strerror(errno);
}

TEST_F(SqliteJournalDamageTest, SaysThatTheFileIsReadOnly) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "1")}).ok());
  journal_.reset();
  ASSERT_EQ(chmod(path_.c_str(), 0400), 0);
  absl::Status status;
  std::thread([&] {
    DropCapabilities();
    status = OpenStatus();
  }).join();
  EXPECT_EQ(status, absl::PermissionDeniedError(absl::StrCat(
                        "journal ", path_, ": is read-only for this process: Permission denied")));
}

TEST_F(SqliteJournalDamageTest, SaysThatTheFolderIsReadOnly) {
  Reopen();
  journal_.reset();
  ASSERT_EQ(chmod(folder_.c_str(), 0500), 0);
  absl::Status status;
  std::thread([&] {
    DropCapabilities();
    status = OpenStatus();
  }).join();
  ASSERT_EQ(chmod(folder_.c_str(), 0700), 0);
  EXPECT_EQ(status, absl::PermissionDeniedError(absl::StrCat(
                        "journal ", path_, ": its folder ", folder_,
                        " is read-only for this process, and the log needs a place beside the "
                        "file: Permission denied")));
}

TEST_F(SqliteJournalDamageTest, ReportsMissingTables) {
  Reopen();
  Execute("DROP TABLE rows");
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SqliteJournalDamageTest, ReportsDamagedPages) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", std::string(100000, 'x'))}).ok());
  journal_.reset();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(4096);
  file << std::string(4096 * 4, '\xee');
  file.close();
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kDataLoss);
}

// The rows before it are read without an error.
TEST_F(SqliteJournalDamageTest, ReportsADamagedPageBehindOtherRows) {
  Reopen();
  std::vector<Record> rows;
  // Short ones, so that none has pages of its own.
  for (int i = 0; i < 5000; ++i) {
    rows.push_back(SampleKey("g", absl::StrCat(i), std::string(100, 'x')));
  }
  ASSERT_TRUE(journal_->Append(rows).ok());
  journal_.reset();
  std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary | std::ios::ate);
  file.seekp(static_cast<std::streamoff>(file.tellp()) / 4096 / 2 * 4096);
  file << std::string(4096, '\xee');
  file.close();
  EXPECT_EQ(OpenStatus().code(), absl::StatusCode::kDataLoss);
}

// A limit on the size of files stands for a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &previous_);
    rlimit limit = previous_;
    limit.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &previous_); }

 private:
  rlimit previous_;
};

TEST_F(SqliteJournalDamageTest, AppliesNothingWhenTheDiskIsFullAndGoesOnLater) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "before")}).ok());
  absl::Status status;
  {
    FileSizeLimit limit(256 << 10);
    status = journal_->Append({SampleKey("g", "a", "during"), SampleKey("g", "b", "during"),
                               SampleKey("g", "c", std::string(1 << 20, 'x'))});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
  ASSERT_TRUE(journal_->Append({SampleKey("g", "d", "after")}).ok());
  EXPECT_THAT(Keys(Reopen()), ElementsAre("g/a=before", "g/d=after"));
}

TEST_F(SqliteJournalDamageTest, AppliesNothingWhenTheDiskIsFullAtTheCommit) {
  Reopen();
  ASSERT_TRUE(journal_->Append({SampleKey("g", "a", "before")}).ok());
  struct stat log;
  ASSERT_EQ(stat(absl::StrCat(path_, "-wal").c_str(), &log), 0);
  absl::Status status;
  {
    // Small enough to stay in memory until COMMIT writes it to the log.
    FileSizeLimit limit(log.st_size + 2000);
    status = journal_->Append({SampleKey("g", "a", "during"), SampleKey("g", "b", "during")});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_THAT(Keys(Reopen()), ElementsAre("g/a=before"));
}

// From here on, this process's syncs fail with EIO.
bool FailSyncs() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{sizeof(program) / sizeof(program[0]), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

// An Append that came back OK without a sync would pass a power loss only by luck; this test makes
// the sync fail and expects the error.
TEST_F(SqliteJournalDamageTest, FailsForGoodOnceASyncFails) {
  const pid_t child = fork();
  if (child == 0) {
    SqliteJournal journal(path_);
    if (!journal.Open().ok()) _exit(1);
    if (!journal.Append({SampleKey("g", "a", "before")}).ok()) _exit(2);
    if (!FailSyncs()) _exit(77);
    if (journal.Append({SampleKey("g", "b", "during")}).code() != absl::StatusCode::kInternal) {
      _exit(3);
    }
    if (journal.Append({SampleKey("g", "c", "after")}).code() != absl::StatusCode::kInternal) {
      _exit(4);
    }
    _exit(0);
  }
  int exit_status = -1;
  ASSERT_EQ(waitpid(child, &exit_status, 0), child);
  if (WIFEXITED(exit_status) && WEXITSTATUS(exit_status) == 77) {
    GTEST_SKIP() << "this kernel allows no seccomp filter";
  }
  EXPECT_EQ(exit_status, 0);
  const std::vector<std::string> keys = Keys(Reopen());
  EXPECT_THAT(keys, testing::Contains("g/a=before"));
  EXPECT_THAT(keys, testing::Not(testing::Contains("g/c=after")));
}

}  // namespace
}  // namespace cohort::coordinator
