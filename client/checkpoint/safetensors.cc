#include "client/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

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

}  // namespace

absl::StatusOr<File> File::Open(const std::string& path) {
  File file;
  file.path_ = path;
  file.fd_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file.fd_ < 0) return SystemError(path, errno);
  struct stat facts = {};
  if (fstat(file.fd_, &facts) != 0) return SystemError(path, errno);
  if (!S_ISREG(facts.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat("checkpoint ", path, ": is no regular file"));
  }
  file.changed_ns_ = ChangedNs(facts);
  const auto size = static_cast<size_t>(facts.st_size);
  if (size > 0) {
    void* const memory = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.fd_, 0);
    if (memory == MAP_FAILED) return SystemError(path, errno);
    file.bytes_ = {static_cast<const char*>(memory), size};
    madvise(memory, size, MADV_SEQUENTIAL);
  }
  const auto named = [&path](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat("checkpoint ", path, ": ", status.message()));
  };
  const absl::StatusOr<int64_t> header = HeaderBytes(file.bytes_, facts.st_size);
  if (!header.ok()) return named(header.status());
  absl::StatusOr<Layout> layout =
      ParseHeader(file.bytes_.substr(0, static_cast<size_t>(*header)), facts.st_size);
  if (!layout.ok()) return named(layout.status());
  file.layout_ = *std::move(layout);
  return file;
}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(changed_ns_, other.changed_ns_);
  std::swap(bytes_, other.bytes_);
  std::swap(layout_, other.layout_);
  return *this;
}

File::~File() {
  if (!bytes_.empty()) munmap(const_cast<char*>(bytes_.data()), bytes_.size());
  if (fd_ >= 0) close(fd_);
}

absl::string_view File::header() const {
  return bytes_.substr(0, static_cast<size_t>(layout_.header_bytes));
}

absl::string_view File::data() const {
  return bytes_.substr(static_cast<size_t>(layout_.header_bytes));
}

absl::string_view File::BytesOf(const TensorEntry& tensor) const {
  return data().substr(static_cast<size_t>(tensor.begin), static_cast<size_t>(tensor.bytes()));
}

absl::Status File::CheckUnchanged() const {
  struct stat facts = {};
  if (fstat(fd_, &facts) != 0) return SystemError(path_, errno);
  if (facts.st_size == static_cast<off_t>(bytes_.size()) && ChangedNs(facts) == changed_ns_) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat("checkpoint ", path_,
                                          ": was changed while it was read, from ", bytes_.size(),
                                          " to ", facts.st_size, " bytes"));
}

}  // namespace cohort::checkpoint
