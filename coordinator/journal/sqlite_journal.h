// A journal in one SQLite file.
//
//   rows  (tenant, grp, kind, id) -> value, checksum      one row per Record that is alive
//   meta  key -> value                                    format_version, boot, boot_checksum
//
// Write-ahead log with synchronous=FULL: one Append is one transaction and one sync of the log. The
// log is folded into the file about every 4 MiB and then written from its start again, so it stays
// near the larger of that and the largest Append. The file is created with mode 0600 (its log
// inherits the mode); users' values are in it.
//
// Each Append looks, before it returns OK, whether the file and its log still have their names:
// SQLite itself goes on writing to files that were removed.
#ifndef COHORT_COORDINATOR_JOURNAL_SQLITE_JOURNAL_H_
#define COHORT_COORDINATOR_JOURNAL_SQLITE_JOURNAL_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "coordinator/core/interface/record.h"
#include "coordinator/journal/file_identity.h"
#include "coordinator/journal/journal.h"

struct sqlite3;
struct sqlite3_stmt;

namespace cohort::coordinator {

// Confined to one thread at a time.
class SqliteJournal final : public Journal {
 public:
  // The layout above, as a number in the file. Format 1 had no boot_checksum; Open adds it.
  static constexpr int kFormatVersion = 2;
  // Sequences of a boot begin at (boot - 1) << 32, which must fit 63 bits.
  static constexpr int64_t kMaxBoot = int64_t{1} << 31;

  // `path` names the file, in a folder that exists, on a local disk. Touches nothing yet. The boot is
  // `least_boot` or more.
  explicit SqliteJournal(const std::string& path, int64_t least_boot = 1);
  ~SqliteJournal() override;
  SqliteJournal(const SqliteJournal&) = delete;
  SqliteJournal& operator=(const SqliteJournal&) = delete;

  // Creates the file if it is missing, and holds it alone until destruction. Every message names
  // the path.
  //   FAILED_PRECONDITION: another journal has it open; a newer program wrote it; it is not a
  //   journal;
  //                        Open was called before
  //   NOT_FOUND: its folder does not exist
  //   PERMISSION_DENIED: the file or its folder may not be read and written
  //   DATA_LOSS: damaged; names the row, or the field of meta
  //   RESOURCE_EXHAUSTED, UNAVAILABLE: disk full, disk error
  // After an error the file is let go of and the boot is not counted.
  using Journal::Open;
  absl::StatusOr<int64_t> Open(const RowSink& take) override;

  // Besides the errors of Journal: FAILED_PRECONDITION before a successful Open. INTERNAL also when
  // another program removed, replaced or cut one of the files.
  absl::Status Append(const std::vector<Record>& records) override;

  bool keeps_nothing() const override { return false; }
  const char* name() const override { return "sqlite"; }

 private:
  struct CloseDatabase {
    void operator()(sqlite3* database) const;
  };
  struct FinalizeStatement {
    void operator()(sqlite3_stmt* statement) const;
  };
  using Statement = std::unique_ptr<sqlite3_stmt, FinalizeStatement>;

  absl::StatusOr<int64_t> OpenFile(const RowSink& take);
  absl::Status CreateFileIfMissing() const;
  absl::Status CheckIsWritable() const;
  absl::Status CheckIsJournal(bool* is_new);
  absl::Status ReadRows(int64_t boot, const RowSink& take);
  absl::StatusOr<Record> ReadRow(sqlite3_stmt* row) const;
  // Returns a value of the table meta. DATA_LOSS: it has no such key.
  absl::StatusOr<int64_t> ReadMeta(absl::string_view key);
  absl::Status WriteMeta(absl::string_view key, int64_t value);
  // The boot before this one: 1 to kMaxBoot - 1. `format` is the file's.
  absl::StatusOr<int64_t> ReadBoot(int64_t format);
  // Makes `boot` durable, and the tables where the file is new.
  absl::Status WriteBoot(bool is_new, int64_t boot);
  absl::Status RememberFiles();
  // Sets broken_, and saves what can be saved, when a file is no longer the one that was opened.
  absl::Status CheckFiles();
  absl::Status PrepareStatements();

  absl::Status Apply(const Record& record);
  // Runs a prepared statement of Append, and makes it ready for the next use.
  absl::Status Run(const Statement& statement);
  // Runs SQL once, in Open.
  absl::Status Execute(const char* sql);
  absl::StatusOr<Statement> Prepare(absl::string_view sql);
  // Binds the columns that name a row, in their order.
  void BindKey(const Statement& statement, const GroupKey& key, RecordKind kind);
  // The one number that `sql` answers.
  absl::StatusOr<int64_t> QueryNumber(absl::string_view sql);
  absl::Status Damaged(absl::string_view what) const;

  // Returns the database's latest error as an error of Open.
  absl::Status OpenError(absl::string_view what) const;

  const std::string path_;
  const int64_t least_boot_;
  std::unique_ptr<sqlite3, CloseDatabase> database_;
  // Prepared once; destroyed before the database.
  Statement begin_;
  Statement commit_;
  Statement rollback_;
  Statement upsert_;
  Statement erase_;
  Statement erase_kind_;
  // Set by a successful Open.
  std::optional<FileIdentity> file_;
  std::optional<FileIdentity> log_;
  off_t least_file_bytes_ = 0;  // the file never shrinks
  // Stays an error once a sync or a rollback failed, or a file was taken away: what the disk holds
  // can then no longer be known.
  absl::Status broken_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_JOURNAL_SQLITE_JOURNAL_H_
