// The bearer token of this process.
#ifndef COHORT_BASE_RPC_TOKEN_FILE_H_
#define COHORT_BASE_RPC_TOKEN_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/threads/mutex.h"

namespace cohort {

// A server takes no longer token, whatever its policy says.
inline constexpr size_t kMaxTokenBytes = 4096;

// A file with one token and, perhaps, white space behind it. Thread-safe.
class TokenFile {
 public:
  // Errors: INVALID_ARGUMENT with the path and the reason: it cannot be read, or is no token of 1
  // to 4096 letters, digits and "-._~+/=" (RFC 6750).
  static absl::StatusOr<std::shared_ptr<TokenFile>> Load(std::string path);

  // The token for a new connection or call. Reads the file again if it has changed, and looks for
  // that once a second at most. A file that cannot be used changes nothing, and is read again
  // at the next look; the log says why.
  std::string Current(Instant now);
  // The same, for a connection that sends a token once. Nothing: the token is still the one of
  // `*version`. That is 0 at first, and becomes the version of the token that this returns.
  std::optional<std::string> IfNew(Instant now, int64_t* version);

 private:
  explicit TokenFile(std::string path) : path_(std::move(path)) {}
  void LookLocked(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string path_;
  Mutex mutex_;
  std::string token_ ABSL_GUARDED_BY(mutex_);
  int64_t version_ ABSL_GUARDED_BY(mutex_) = 1;
  // The file's when it was last read; empty: it could not be used.
  std::string stamp_ ABSL_GUARDED_BY(mutex_);
  std::string last_error_ ABSL_GUARDED_BY(mutex_);
  Instant next_look_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

}  // namespace cohort

#endif  // COHORT_BASE_RPC_TOKEN_FILE_H_
