// A file with the public keys of an issuer of tokens.
#ifndef COHORT_BASE_ACCESS_JWKS_FILE_H_
#define COHORT_BASE_ACCESS_JWKS_FILE_H_

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/access/jwks.h"
#include "base/threads/mutex.h"

namespace cohort {

class JwksFile {
 public:
  // Errors: INVALID_ARGUMENT with the path and the reason.
  static absl::StatusOr<std::shared_ptr<JwksFile>> Load(std::string path);

  const std::string& path() const { return path_; }
  // The keys at the last look. Thread-safe.
  std::shared_ptr<const Jwks> keys() const;
  // Reads the file again if it has changed; true: other keys were taken. A file that cannot be used
  // changes nothing, and is read again at the next look; the log says why. One thread at a time.
  bool LookAgain();
  // Whether the file could be used at the last look. Thread-safe.
  bool is_usable() const { return is_usable_.load(std::memory_order_relaxed); }

 private:
  explicit JwksFile(std::string path) : path_(std::move(path)) {}
  static absl::StatusOr<Jwks> Read(const std::string& path);

  const std::string path_;
  std::atomic<bool> is_usable_{true};
  mutable Mutex mutex_;
  std::shared_ptr<const Jwks> keys_ ABSL_GUARDED_BY(mutex_);
  std::string stamp_;  // of the file when it was last read; empty: it could not be used
  std::string last_error_;
};

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_JWKS_FILE_H_
