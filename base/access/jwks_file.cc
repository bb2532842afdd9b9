#include "base/access/jwks_file.h"

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/file_stamp.h"
#include "base/text/logging.h"

namespace cohort {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 20;

absl::Status Wrong(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("JWKS file ", path, ": ", why));
}

}  // namespace

absl::StatusOr<Jwks> JwksFile::Read(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadWatchedFile(path, kMaxFileBytes);
  if (!text.ok()) return Wrong(path, text.status().message());
  absl::StatusOr<Jwks> keys = Jwks::Parse(*text);
  if (!keys.ok()) return Wrong(path, keys.status().message());
  return keys;
}

absl::StatusOr<std::shared_ptr<JwksFile>> JwksFile::Load(std::string path) {
  std::string stamp = FileStamp(path).value_or("");
  absl::StatusOr<Jwks> keys = Read(path);
  if (!keys.ok()) return keys.status();
  std::shared_ptr<JwksFile> file(new JwksFile(std::move(path)));
  file->stamp_ = std::move(stamp);
  MutexLock lock(&file->mutex_);
  file->keys_ = std::make_shared<const Jwks>(*std::move(keys));
  return file;
}

std::shared_ptr<const Jwks> JwksFile::keys() const {
  MutexLock lock(&mutex_);
  return keys_;
}

bool JwksFile::LookAgain() {
  std::string stamp = FileStamp(path_).value_or("");
  if (!stamp.empty() && stamp == stamp_) return false;
  absl::StatusOr<Jwks> keys = Read(path_);
  is_usable_.store(keys.ok(), std::memory_order_relaxed);
  if (!keys.ok()) {
    stamp_.clear();
    if (std::string error(keys.status().message()); error != last_error_) {
      last_error_ = std::move(error);
      Log(LogLevel::kError, "the new keys of an issuer cannot be used: the old ones stay",
          {{"why", last_error_}});
    }
    return false;
  }
  stamp_ = std::move(stamp);
  last_error_.clear();
  {
    MutexLock lock(&mutex_);
    keys_ = std::make_shared<const Jwks>(*std::move(keys));
  }
  Log(LogLevel::kInfo, "the keys of an issuer were read again", {{"path", path_}});
  return true;
}

}  // namespace cohort
