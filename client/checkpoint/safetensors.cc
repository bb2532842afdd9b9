#include "client/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::checkpoint {
namespace {

int64_t ChangedNs(const struct stat& facts) {
  return facts.st_mtim.tv_sec * int64_t{1'000'000'000} + facts.st_mtim.tv_nsec;
}

absl::Status SystemError(const std::string& path, int error) {
  const std::string text = absl::StrCat("checkpoint ", path, ": ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(text);
  if (error == EACCES || error == EPERM) return absl::PermissionDeniedError(text);
  return absl::InternalError(text);
}

// Fills `bytes` from where `offset` is in the file.
absl::Status ReadAt(int fd, const std::string& path, int64_t offset, absl::Span<char> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = pread(fd, bytes.data(), bytes.size(), offset);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path, errno);
    if (count == 0) {
      return absl::DataLossError(absl::StrCat("checkpoint ", path,
                                              ": was cut while it was read: it ends at byte ",
                                              offset, ", expected ", bytes.size(), " more"));
    }
    offset += count;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path) {
  File file;
  file.path_ = path;
  // A FIFO without a writer must not block.
  file.fd_ = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (file.fd_.get() < 0) return SystemError(path, errno);
  struct stat facts = {};
  if (fstat(file.fd_.get(), &facts) != 0) return SystemError(path, errno);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint ", path, ": is no regular file"));
  }
  file.bytes_ = facts.st_size;
  file.changed_ns_ = ChangedNs(facts);
  posix_fadvise(file.fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);
  const auto named = [&path](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("checkpoint ", path, ": ", status.message()));
  };
  file.header_.resize(static_cast<size_t>(std::min(kLengthBytes, file.bytes_)));
  COHORT_RETURN_IF_ERROR(ReadAt(file.fd_.get(), path, 0, absl::MakeSpan(file.header_)));
  const absl::StatusOr<int64_t> header = HeaderBytes(file.header_, file.bytes_);
  if (!header.ok()) return named(header.status());
  file.header_.resize(static_cast<size_t>(*header));
  COHORT_RETURN_IF_ERROR(ReadAt(file.fd_.get(), path, kLengthBytes,
                                absl::MakeSpan(file.header_).subspan(kLengthBytes)));
  absl::StatusOr<Layout> layout = ParseHeader(file.header_, file.bytes_);
  if (!layout.ok()) return named(layout.status());
  file.layout_ = *std::move(layout);
  return file;
}

absl::Status File::Read(int64_t offset, absl::Span<char> bytes) const {
  return ReadAt(fd_.get(), path_, layout_.header_bytes + offset, bytes);
}

absl::Status File::CheckUnchanged() const {
  struct stat facts = {};
  if (fstat(fd_.get(), &facts) != 0) return SystemError(path_, errno);
  if (facts.st_size == bytes_ && ChangedNs(facts) == changed_ns_) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("checkpoint ", path_,
                                          ": was changed while it was read, from ", bytes_, " to ",
                                          facts.st_size, " bytes"));
}

}  // namespace cohort::checkpoint
