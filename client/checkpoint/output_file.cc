#include "client/checkpoint/output_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

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

}  // namespace

OutputFile::OutputFile(std::string path, std::string temporary, UniqueFd fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(std::move(fd)) {}

absl::StatusOr<std::unique_ptr<OutputFile>> OutputFile::Create(const std::string& path) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (fd.get() < 0) return Failed(path, "make");
  return std::unique_ptr<OutputFile>(new OutputFile(path, temporary, std::move(fd)));
}

OutputFile::~OutputFile() {
  if (!committed_) unlink(temporary_.c_str());
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
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return Failed(path_, "make");
  committed_ = true;
  // The new name is on the disk with its folder.
  const UniqueFd folder(open(FolderOf(path_).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() < 0 || fsync(folder.get()) != 0) return Failed(path_, "keep");
  return absl::OkStatus();
}

}  // namespace cohort::checkpoint
