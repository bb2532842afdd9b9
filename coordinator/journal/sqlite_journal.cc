// One file, though long: statements and the rules by which they are repeated belong to one
// connection.
#include "coordinator/journal/sqlite_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "coordinator/journal/record_codec.h"

namespace cohort::coordinator {
namespace {

// SQLite's application_id: "Coht". Tells our file from another program's.
constexpr int64_t kApplicationId = 0x436f6874;

constexpr char kCreateTables[] = R"sql(
CREATE TABLE meta (key TEXT PRIMARY KEY NOT NULL, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE rows (
  tenant BLOB NOT NULL,
  grp BLOB NOT NULL,
  kind INTEGER NOT NULL,
  id BLOB NOT NULL,
  value BLOB NOT NULL,
  checksum INTEGER NOT NULL,
  PRIMARY KEY (tenant, grp, kind, id)
) WITHOUT ROWID;
)sql";

// SQLite takes "", ":memory:" and "file:..." for something else than the name of a file.
std::string AsFileName(const std::string& path) {
  if (path.empty() || path.front() == '/') return path;
  return absl::StrCat("./", path);
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.find_last_of('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// An absl::string_view over a column's bytes; valid until the next step of the statement.
absl::string_view Column(sqlite3_stmt* row, int column) {
  const void* bytes = sqlite3_column_blob(row, column);
  if (bytes == nullptr) return "";
  return absl::string_view(static_cast<const char*>(bytes), sqlite3_column_bytes(row, column));
}

// The bytes must outlive the statement's run.
void BindBytes(sqlite3_stmt* statement, int parameter, absl::string_view bytes) {
  // A null pointer would bind NULL instead of an empty value.
  sqlite3_bind_blob64(statement, parameter, bytes.empty() ? "" : bytes.data(), bytes.size(),
                      SQLITE_STATIC);
}

uint32_t Extend(uint32_t checksum, absl::string_view bytes) {
  return crc32_z(checksum, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size());
}

// Covers the name of the row too, with lengths, so that a value under a damaged or a wrong name
// shows. SQLite itself keeps no checksum of its pages outside the log.
uint32_t Checksum(const GroupKey& key, int64_t kind, absl::string_view id,
                  absl::string_view value) {
  const std::string lengths =
      absl::StrCat(key.tenant.size(), ",", key.group.size(), ",", kind, ",", id.size());
  uint32_t checksum = Extend(0, lengths);
  checksum = Extend(checksum, key.tenant);
  checksum = Extend(checksum, key.group);
  checksum = Extend(checksum, id);
  return Extend(checksum, value);
}

// Covers the format too, so that a damaged number of an older format does not turn the check off.
uint32_t BootChecksum(int64_t format, int64_t boot) {
  return Extend(0, absl::StrCat("format_version,", format, ",boot,", boot));
}

// The errno behind an I/O error, or 0. SQLite returns it for the database after some calls, and
// otherwise keeps it with the file that failed: the log (or the rollback journal, while the log is
// not yet used), or the main file.
int SystemError(sqlite3* database) {
  if (const int error = sqlite3_system_errno(database); error != 0) return error;
  for (const int pointer : {SQLITE_FCNTL_JOURNAL_POINTER, SQLITE_FCNTL_FILE_POINTER}) {
    sqlite3_file* file = nullptr;
    int error = 0;
    if (sqlite3_file_control(database, "main", pointer, &file) == SQLITE_OK && file != nullptr &&
        file->pMethods != nullptr &&
        file->pMethods->xFileControl(file, SQLITE_FCNTL_LAST_ERRNO, &error) == SQLITE_OK &&
        error != 0) {
      return error;
    }
  }
  return 0;
}

// What `database` last complained of.
struct DatabaseError {
  explicit DatabaseError(sqlite3* database)
      : extended_code(sqlite3_extended_errcode(database)),
        code(extended_code & 0xff),
        text(absl::StrCat(sqlite3_errmsg(database), " (SQLite error ", extended_code)),
        system_error(code == SQLITE_IOERR || code == SQLITE_CANTOPEN ? SystemError(database) : 0) {
    if (system_error != 0) absl::StrAppend(&text, ", ", strerror(system_error));
    text += ")";
  }

  bool IsDamage() const { return code == SQLITE_CORRUPT || code == SQLITE_NOTADB; }
  bool IsFailedSync() const {
    return extended_code == SQLITE_IOERR_FSYNC || extended_code == SQLITE_IOERR_DIR_FSYNC;
  }
  bool IsExhaustion() const {
    if (code == SQLITE_NOMEM || code == SQLITE_TOOBIG || code == SQLITE_FULL) return true;
    // A quota and a limit on the size of files come as failed writes.
    return extended_code == SQLITE_IOERR_WRITE &&
           (system_error == ENOSPC || system_error == EDQUOT || system_error == EFBIG);
  }

  const int extended_code;
  const int code;
  std::string text;  // before system_error, because the calls for that may replace the message
  const int system_error;
};

}  // namespace

void SqliteJournal::CloseDatabase::operator()(sqlite3* database) const { sqlite3_close(database); }

void SqliteJournal::FinalizeStatement::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

SqliteJournal::SqliteJournal(const std::string& path, int64_t least_boot)
    : path_(AsFileName(path)), least_boot_(least_boot) {}

SqliteJournal::~SqliteJournal() = default;

absl::StatusOr<int64_t> SqliteJournal::Open(const RowSink& take) {
  if (database_ != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("journal ", path_, ": already open"));
  }
  absl::StatusOr<int64_t> boot = OpenFile(take);
  if (!boot.ok()) {
    for (Statement* statement : {&begin_, &commit_, &rollback_, &upsert_, &erase_, &erase_kind_}) {
      statement->reset();
    }
    database_.reset();
    file_.reset();
    log_.reset();
    least_file_bytes_ = 0;
  }
  return boot;
}

absl::StatusOr<int64_t> SqliteJournal::OpenFile(const RowSink& take) {
  COHORT_RETURN_IF_ERROR(CreateFileIfMissing());
  sqlite3* database = nullptr;
  // No mutex: the class is confined to one thread at a time.
  const int opened = sqlite3_open_v2(path_.c_str(), &database,
                                     SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, nullptr);
  database_.reset(database);
  if (opened != SQLITE_OK) return OpenError("cannot open");
  sqlite3_extended_result_codes(database, 1);
  COHORT_RETURN_IF_ERROR(CheckIsWritable());

  // The lock is taken by the first read below and held until the file is closed. Taken before the
  // log is first touched, it also keeps the log's index in this process's memory.
  COHORT_RETURN_IF_ERROR(Execute("PRAGMA locking_mode=EXCLUSIVE"));
  bool is_new = false;
  COHORT_RETURN_IF_ERROR(CheckIsJournal(&is_new));
  COHORT_RETURN_IF_ERROR(Execute("PRAGMA journal_mode=WAL"));
  COHORT_RETURN_IF_ERROR(Execute("PRAGMA synchronous=FULL"));
  COHORT_RETURN_IF_ERROR(Execute("PRAGMA wal_autocheckpoint=1000"));
  // Debian's SQLite would write zeros over every deleted value, which doubles the work of an
  // undelivered object.
  COHORT_RETURN_IF_ERROR(Execute("PRAGMA secure_delete=FAST"));
  // After one huge transaction the log is cut back to this.
  COHORT_RETURN_IF_ERROR(Execute("PRAGMA journal_size_limit=16777216"));

  int64_t boot = least_boot_;
  if (!is_new) {
    COHORT_ASSIGN_OR_RETURN(const int64_t format, ReadMeta("format_version"));
    COHORT_ASSIGN_OR_RETURN(const int64_t last_boot, ReadBoot(format));
    boot = std::max(last_boot + 1, least_boot_);
    COHORT_RETURN_IF_ERROR(ReadRows(boot, take));
  }
  COHORT_RETURN_IF_ERROR(WriteBoot(is_new, boot));
  COHORT_RETURN_IF_ERROR(PrepareStatements());
  COHORT_RETURN_IF_ERROR(RememberFiles());
  return boot;
}

// SQLite opens a file that may not be written for reading, and then fails with errors of its own.
absl::Status SqliteJournal::CheckIsWritable() const {
  int error = faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) == 0 ? 0 : errno;
  if (error == 0 && sqlite3_db_readonly(database_.get(), "main") == 1) error = EACCES;
  if (error != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("journal ", path_, ": is read-only for this process: ", strerror(error)));
  }
  const std::string folder = FolderOf(path_);
  error = faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) == 0 ? 0 : errno;
  if (error != 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("journal ", path_, ": its folder ", folder,
                     " is read-only for this process, and the log needs a place beside the file: ",
                     strerror(error)));
  }
  return absl::OkStatus();
}

absl::Status SqliteJournal::CreateFileIfMissing() const {
  if (path_.empty()) return absl::InvalidArgumentError("journal: the path is empty");
  // Only a file that is new is opened here: closing one that SQLite also has open would drop
  // SQLite's locks.
  const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) {
    const int error = errno;
    if (error == EEXIST) return absl::OkStatus();
    if (error == ENOENT || error == ENOTDIR) {
      return absl::NotFoundError(
          absl::StrCat("journal ", path_, ": the folder ", FolderOf(path_), " does not exist"));
    }
    return absl::ErrnoToStatus(error, absl::StrCat("journal ", path_, ": cannot create"));
  }
  close(file);
  // The file's name must survive a power loss too.
  const int folder = open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0 || fsync(folder) != 0) {
    const int error = errno;
    if (folder >= 0) close(folder);
    return absl::UnavailableError(
        absl::StrCat("journal ", path_, ": cannot sync its folder: ", strerror(error)));
  }
  close(folder);
  return absl::OkStatus();
}

// Nothing is written before this has passed, so that another program's file stays as it is.
absl::Status SqliteJournal::CheckIsJournal(bool* is_new) {
  COHORT_ASSIGN_OR_RETURN(const int64_t tables, QueryNumber("SELECT count(*) FROM sqlite_master"));
  COHORT_ASSIGN_OR_RETURN(const int64_t application, QueryNumber("PRAGMA application_id"));
  *is_new = tables == 0 && application == 0;
  if (*is_new) return absl::OkStatus();
  if (application != kApplicationId) {
    return absl::FailedPreconditionError(
        absl::StrCat("journal ", path_, ": an SQLite file of another program"));
  }
  COHORT_ASSIGN_OR_RETURN(const int64_t version, ReadMeta("format_version"));
  if (version > kFormatVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("journal ", path_, ": written by a newer program: its format version is ",
                     version, ", this program reads up to ", kFormatVersion));
  }
  if (version < 1) {
    return Damaged(absl::StrCat("meta.format_version is ", version, ", which never existed"));
  }
  return absl::OkStatus();
}

absl::Status SqliteJournal::ReadRows(int64_t boot, const RowSink& take) {
  COHORT_ASSIGN_OR_RETURN(const Statement statement,
                          Prepare("SELECT tenant, grp, kind, id, value, checksum FROM rows "
                                  "ORDER BY tenant, grp, kind, id"));
  while (true) {
    const int result = sqlite3_step(statement.get());
    if (result == SQLITE_DONE) return absl::OkStatus();
    if (result != SQLITE_ROW) return OpenError("cannot read rows");
    COHORT_ASSIGN_OR_RETURN(Record record, ReadRow(statement.get()));
    take(boot, std::move(record));
  }
}

absl::StatusOr<Record> SqliteJournal::ReadRow(sqlite3_stmt* row) const {
  Record record;
  record.key.tenant = std::string(Column(row, 0));
  record.key.group = std::string(Column(row, 1));
  const int64_t kind = sqlite3_column_int64(row, 2);
  record.kind = static_cast<RecordKind>(kind);
  record.id = std::string(Column(row, 3));
  const absl::string_view value = Column(row, 4);
  const auto damaged = [&](absl::string_view why) {
    return absl::DataLossError(absl::StrCat(
        "journal ", path_, ": damaged row: ", DescribeRow(record.key, record.kind, record.id), ": ",
        why));
  };
  if (sqlite3_column_int64(row, 5) != Checksum(record.key, kind, record.id, value)) {
    return damaged("its checksum does not match");
  }
  absl::StatusOr<RecordValue> decoded = DecodeRecord(record.kind, value);
  if (!decoded.ok()) return damaged(decoded.status().message());
  record.value = *std::move(decoded);
  return record;
}

absl::StatusOr<int64_t> SqliteJournal::ReadMeta(absl::string_view key) {
  COHORT_ASSIGN_OR_RETURN(
      const int64_t count,
      QueryNumber(absl::StrCat("SELECT count(*) FROM meta WHERE key = '", key, "'")));
  if (count != 1) return Damaged(absl::StrCat("meta.", key, " is missing"));
  return QueryNumber(absl::StrCat("SELECT value FROM meta WHERE key = '", key, "'"));
}

absl::Status SqliteJournal::WriteMeta(absl::string_view key, int64_t value) {
  return Execute(absl::StrCat("INSERT INTO meta (key, value) VALUES ('", key, "', ", value,
                              ") ON CONFLICT (key) DO UPDATE SET value = excluded.value")
                     .c_str());
}

absl::StatusOr<int64_t> SqliteJournal::ReadBoot(int64_t format) {
  COHORT_ASSIGN_OR_RETURN(const int64_t boot, ReadMeta("boot"));
  // A file has its first boot from the transaction that makes its tables.
  if (boot < 1 || boot >= kMaxBoot) {
    return Damaged(absl::StrCat("meta.boot is ", boot, ", expected 1 to ", kMaxBoot - 1));
  }
  if (format < kFormatVersion) {
    COHORT_ASSIGN_OR_RETURN(const int64_t checksums,
                            QueryNumber("SELECT count(*) FROM meta WHERE key = 'boot_checksum'"));
    if (checksums == 0) return boot;
    return Damaged(absl::StrCat("meta.format_version is ", format,
                                ", but meta.boot_checksum is of a later format"));
  }
  COHORT_ASSIGN_OR_RETURN(const int64_t checksum, ReadMeta("boot_checksum"));
  if (checksum == BootChecksum(format, boot)) return boot;
  return Damaged(absl::StrCat("meta.boot is ", boot, ", and its checksum does not match"));
}

absl::Status SqliteJournal::WriteBoot(bool is_new, int64_t boot) {
  COHORT_RETURN_IF_ERROR(Execute("BEGIN IMMEDIATE"));
  if (is_new) {
    COHORT_RETURN_IF_ERROR(Execute(kCreateTables));
    COHORT_RETURN_IF_ERROR(Execute(absl::StrCat("PRAGMA application_id=", kApplicationId).c_str()));
  }
  COHORT_RETURN_IF_ERROR(WriteMeta("format_version", kFormatVersion));
  COHORT_RETURN_IF_ERROR(WriteMeta("boot", boot));
  COHORT_RETURN_IF_ERROR(WriteMeta("boot_checksum", BootChecksum(kFormatVersion, boot)));
  return Execute("COMMIT");
}

absl::Status SqliteJournal::RememberFiles() {
  const auto remember = [this](const std::string& path) {
    absl::StatusOr<FileIdentity> file = FileIdentity::Of(path);
    if (file.ok()) return file;
    return absl::StatusOr<FileIdentity>(absl::UnavailableError(
        absl::StrCat("journal ", path_, ": cannot open: ", file.status().message())));
  };
  COHORT_ASSIGN_OR_RETURN(file_, remember(path_));
  // SQLite follows links: the log lies beside the file that they lead to.
  const char* const file_name = sqlite3_db_filename(database_.get(), "main");
  COHORT_ASSIGN_OR_RETURN(log_, remember(sqlite3_filename_wal(file_name)));
  int moved = 0;
  if (sqlite3_file_control(database_.get(), "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK &&
      moved != 0) {
    return absl::UnavailableError(
        absl::StrCat("journal ", path_, ": cannot open: it was replaced meanwhile"));
  }
  return absl::OkStatus();
}

absl::Status SqliteJournal::CheckFiles() {
  const absl::StatusOr<off_t> file_bytes = file_->Check(least_file_bytes_);
  absl::Status status = file_bytes.status();
  if (status.ok()) {
    least_file_bytes_ = *file_bytes;
    status = log_->Check(0).status();
    if (status.ok()) return status;
    // The file is still this journal's: copy the acknowledged pages from the log to the file.
    sqlite3_wal_checkpoint_v2(database_.get(), nullptr, SQLITE_CHECKPOINT_PASSIVE, nullptr,
                              nullptr);
  }
  // Closing would remove the log by its name, which may be another journal's by now.
  sqlite3_db_config(database_.get(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
  broken_ = absl::InternalError(absl::StrCat(
      "journal ", path_, ": ", status.message(),
      "; nothing is acknowledged from now on: put the file back or remove its rest, and restart"));
  return broken_;
}

absl::Status SqliteJournal::PrepareStatements() {
  COHORT_ASSIGN_OR_RETURN(begin_, Prepare("BEGIN IMMEDIATE"));
  COHORT_ASSIGN_OR_RETURN(commit_, Prepare("COMMIT"));
  COHORT_ASSIGN_OR_RETURN(rollback_, Prepare("ROLLBACK"));
  COHORT_ASSIGN_OR_RETURN(
      upsert_, Prepare("INSERT INTO rows (tenant, grp, kind, id, value, checksum) "
                       "VALUES (?1, ?2, ?3, ?4, ?5, ?6) "
                       "ON CONFLICT (tenant, grp, kind, id) "
                       "DO UPDATE SET value = excluded.value, checksum = excluded.checksum"));
  COHORT_ASSIGN_OR_RETURN(
      erase_, Prepare("DELETE FROM rows WHERE tenant = ?1 AND grp = ?2 AND kind = ?3 AND id = ?4"));
  COHORT_ASSIGN_OR_RETURN(erase_kind_,
                          Prepare("DELETE FROM rows WHERE tenant = ?1 AND grp = ?2 AND kind = ?3"));
  return absl::OkStatus();
}

absl::Status SqliteJournal::Append(const std::vector<Record>& records) {
  if (database_ == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("journal ", path_, ": not open"));
  }
  COHORT_RETURN_IF_ERROR(broken_);
  if (records.empty()) return absl::OkStatus();

  absl::Status status = Run(begin_);
  for (const Record& record : records) {
    if (!status.ok()) break;
    status = Apply(record);
  }
  if (status.ok()) status = Run(commit_);
  if (status.ok()) return CheckFiles();
  // SQLite has already rolled back after some errors.
  if (sqlite3_get_autocommit(database_.get()) == 0) {
    const absl::Status rolled_back = Run(rollback_);
    if (!rolled_back.ok()) broken_ = rolled_back;
  }
  return status;
}

absl::Status SqliteJournal::Apply(const Record& record) {
  if (!record.value.has_value()) {
    const Statement& erase = record.whole_kind ? erase_kind_ : erase_;
    BindKey(erase, record.key, record.kind);
    if (!record.whole_kind) BindBytes(erase.get(), 4, record.id);
    return Run(erase);
  }
  if (KindOf(*record.value) != record.kind) {
    return absl::InternalError(
        absl::StrCat("journal ", path_, ": ", DescribeRow(record.key, record.kind, record.id),
                     " was given a value of kind ", RecordKindName(KindOf(*record.value))));
  }
  const std::string value = EncodeRecord(*record.value);
  BindKey(upsert_, record.key, record.kind);
  BindBytes(upsert_.get(), 4, record.id);
  BindBytes(upsert_.get(), 5, value);
  sqlite3_bind_int64(upsert_.get(), 6,
                     Checksum(record.key, static_cast<int64_t>(record.kind), record.id, value));
  return Run(upsert_);
}

absl::Status SqliteJournal::Run(const Statement& statement) {
  const int result = sqlite3_step(statement.get());
  if (result == SQLITE_DONE) {
    sqlite3_reset(statement.get());
    return absl::OkStatus();
  }
  const DatabaseError error(database_.get());
  sqlite3_reset(statement.get());
  const std::string text = absl::StrCat("journal ", path_, ": cannot append: ", error.text);
  if (error.IsFailedSync()) {
    // The log may have the whole batch, and the kernel may have dropped pages that it could not
    // write.
    broken_ = absl::InternalError(
        absl::StrCat(text, "; whether the batch is kept shows at the next start"));
    return broken_;
  }
  if (error.IsDamage()) return absl::InternalError(text);
  if (error.IsExhaustion()) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

absl::Status SqliteJournal::Execute(const char* sql) {
  if (sqlite3_exec(database_.get(), sql, nullptr, nullptr, nullptr) == SQLITE_OK) {
    return absl::OkStatus();
  }
  return OpenError("cannot open");
}

absl::StatusOr<SqliteJournal::Statement> SqliteJournal::Prepare(absl::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  if (sqlite3_prepare_v3(database_.get(), sql.data(), static_cast<int>(sql.size()),
                         SQLITE_PREPARE_PERSISTENT, &statement, nullptr) != SQLITE_OK) {
    return OpenError("cannot open");
  }
  return Statement(statement);
}

absl::StatusOr<int64_t> SqliteJournal::QueryNumber(absl::string_view sql) {
  COHORT_ASSIGN_OR_RETURN(const Statement statement, Prepare(sql));
  const int result = sqlite3_step(statement.get());
  if (result == SQLITE_ROW) return sqlite3_column_int64(statement.get(), 0);
  if (result == SQLITE_DONE) {
    return Damaged(absl::StrCat("no answer to ", sql));
  }
  return OpenError("cannot open");
}

void SqliteJournal::BindKey(const Statement& statement, const GroupKey& key, RecordKind kind) {
  BindBytes(statement.get(), 1, key.tenant);
  BindBytes(statement.get(), 2, key.group);
  sqlite3_bind_int64(statement.get(), 3, static_cast<int64_t>(kind));
}

absl::Status SqliteJournal::Damaged(absl::string_view what) const {
  return absl::DataLossError(absl::StrCat("journal ", path_, ": damaged: ", what));
}

absl::Status SqliteJournal::OpenError(absl::string_view what) const {
  if (database_ == nullptr) return absl::ResourceExhaustedError("journal: out of memory");
  const DatabaseError error(database_.get());
  if (error.code == SQLITE_BUSY) {
    return absl::FailedPreconditionError(absl::StrCat(
        "journal ", path_, ": in use by another coordinator; one file serves one coordinator"));
  }
  const std::string text = absl::StrCat("journal ", path_, ": ", what, ": ", error.text);
  if (error.IsDamage() || error.code == SQLITE_ERROR) {
    // SQLITE_ERROR: our own SQL does not fit the tables found.
    return absl::DataLossError(absl::StrCat(text, "; the file is damaged or is not a journal"));
  }
  if (error.code == SQLITE_PERM || error.code == SQLITE_READONLY || error.code == SQLITE_CANTOPEN ||
      error.code == SQLITE_AUTH) {
    return absl::PermissionDeniedError(text);
  }
  if (error.IsExhaustion()) return absl::ResourceExhaustedError(text);
  return absl::UnavailableError(text);
}

}  // namespace cohort::coordinator
