#include "client/checkpoint/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rpc/random_bits.h"
#include "base/status_macros.h"

namespace cohort::checkpoint {
namespace {

absl::Status Failed(const std::string& path, absl::string_view what) {
  const std::string text = absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(errno));
  switch (errno) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(text);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(text);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::ResourceExhaustedError(text);
    default:
      return absl::InternalError(text);
  }
}

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

absl::string_view NameOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

const char* KindOf(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISLNK(mode)) return "a symbolic link";
  if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
  return "a special file";
}

}  // namespace

absl::StatusOr<UniqueFd> CreateNewFile(int folder, const std::string& name) {
  UniqueFd fd(
      openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
  if (fd.get() >= 0) return fd;
  if (errno == EEXIST || errno == ELOOP) {
    return absl::AlreadyExistsError(absl::StrCat(name, " is there already"));
  }
  return Failed(name, "make");
}

OutputFile::OutputFile(const std::string& path, UniqueFd folder)
    : path_(path), folder_(std::move(folder)), name_(NameOf(path)) {}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path) {
  const std::string folder = FolderOf(path);
  UniqueFd folder_fd(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder_fd.get() < 0) return Failed(path, "make");
  std::unique_ptr<OutputFile> file(new OutputFile(path, std::move(folder_fd)));
  COHORT_RETURN_IF_ERROR(file->CheckTarget());
  // A name may have 255 bytes.
  const std::string name =
      absl::StrCat(file->name_.substr(0, 200), ".", RandomBits().ToString(), ".tmp");
  absl::StatusOr<UniqueFd> created = CreateNewFile(file->folder_.get(), name);
  if (!created.ok()) {
    return absl::Status(created.status().code(),
                        absl::StrCat("cannot make ", path, ": ", created.status().message()));
  }
  file->fd_ = *std::move(created);
  file->temporary_name_ = name;
  file->temporary_ = absl::StrCat(folder, "/", name);
  return file;
}

OutputFile::~OutputFile() {
  if (fd_.is_open() && !committed_) unlinkat(folder_.get(), temporary_name_.c_str(), 0);
}

absl::Status OutputFile::CheckTarget() const {
  if (name_.empty() || name_ == "." || name_ == "..") {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot make ", path_, ": it names a folder"));
  }
  struct stat facts = {};
  if (fstatat(folder_.get(), name_.c_str(), &facts, AT_SYMLINK_NOFOLLOW) != 0) {
    return errno == ENOENT ? absl::OkStatus() : Failed(path_, "make");
  }
  if (S_ISREG(facts.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("cannot replace ", path_, ": it is ",
                                                    KindOf(facts.st_mode),
                                                    ", expected a regular file or none"));
}

absl::Status OutputFile::Append(absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed(path_, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::Status OutputFile::Commit() {
  if (fsync(fd_.get()) != 0) return Failed(path_, "write");
  COHORT_RETURN_IF_ERROR(CheckTarget());
  if (renameat(folder_.get(), temporary_name_.c_str(), folder_.get(), name_.c_str()) != 0) {
    return Failed(path_, "make");
  }
  committed_ = true;
  // The rename is on the disk once its folder is synced.
  if (fsync(folder_.get()) != 0) return Failed(path_, "keep");
  return absl::OkStatus();
}

}  // namespace cohort::checkpoint
