// Bounds the memory of requests that are not complete, over all connections of a server together.
// Another such object bounds that of TLS handshakes, so that clients without a certificate take no
// room from requests.
//
// gRPC and framed RPC keep the bytes of a request until its last one has come. A limit for each
// connection does not bound their sum, and gRPC 1.51 ends the process if an allocation fails
// (docs/decisions.md). So the sum has a limit, which is a share of the memory that the process may
// use.
//
//   auto all = std::make_shared<IncompleteRequestBytes>("max_incoming_bytes", limit);
//   IncomingCharge charge(all);           // of one connection
//   charge.Set(bytes_of_incomplete_requests);
//   absl::Status status = all->Check();   // after the charge has grown
#ifndef COHORT_BASE_PORT_LIMITS_INCOMPLETE_REQUEST_BYTES_H_
#define COHORT_BASE_PORT_LIMITS_INCOMPLETE_REQUEST_BYTES_H_

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/memory/memory_limit.h"

namespace cohort {

// Returns `asked`, or if that is 0 an eighth of the memory that this process may use, and 16 MiB at
// least. Reads files if `asked` is 0.
inline int64_t MaxIncomingBytes(int64_t asked) {
  constexpr int64_t kFewest = int64_t{16} << 20;
  return asked > 0 ? asked : std::max(MemoryLimitBytes() / 8, kFewest);
}

// Thread-safe.
class IncompleteRequestBytes {
 public:
  // `name` is how errors call the limit, and `content` the bytes. `whole`, if not null, has all of
  // these bytes too, and has its own limit.
  IncompleteRequestBytes(std::string name, int64_t limit,
                         std::shared_ptr<IncompleteRequestBytes> whole = nullptr,
                         std::string content = "requests")
      : name_(std::move(name)),
        content_(std::move(content)),
        limit_(limit),
        whole_(std::move(whole)) {}

  // Set it before any connection charges. It runs for each change of the sum, on the thread that
  // changes it.
  std::function<void(int64_t more)> on_change;

  // RESOURCE_EXHAUSTED if the sum is over a limit; names the limit, its value and the sum.
  absl::Status Check() const {
    for (const IncompleteRequestBytes* one = this; one != nullptr; one = one->whole_.get()) {
      if (one->held() <= one->limit_) continue;
      return absl::ResourceExhaustedError(
          absl::StrCat(one->content_, " that are not complete are over ", one->name_, " (",
                       one->limit_, "): they hold ", one->held(), " bytes"));
    }
    return absl::OkStatus();
  }
  int64_t held() const { return held_.load(std::memory_order_relaxed); }
  int64_t limit() const { return limit_; }

 private:
  friend class IncomingCharge;

  void Add(int64_t more) {
    held_.fetch_add(more, std::memory_order_relaxed);
    if (on_change) on_change(more);
    if (whole_ != nullptr) whole_->Add(more);
  }

  const std::string name_;
  const std::string content_;
  const int64_t limit_;
  const std::shared_ptr<IncompleteRequestBytes> whole_;
  std::atomic<int64_t> held_{0};
};

// The bytes of one connection, given back at its end. Thread-compatible.
class IncomingCharge {
 public:
  IncomingCharge() = default;
  // With null nothing is charged.
  explicit IncomingCharge(std::shared_ptr<IncompleteRequestBytes> all) : all_(std::move(all)) {}
  IncomingCharge(IncomingCharge&& other) noexcept
      : all_(std::move(other.all_)), bytes_(std::exchange(other.bytes_, 0)) {}
  IncomingCharge& operator=(IncomingCharge&& other) noexcept {
    if (this == &other) return *this;
    Set(0);
    all_ = std::move(other.all_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~IncomingCharge() { Set(0); }

  // Returns whether the charge has grown: then Check tells whether it may.
  bool Set(int64_t bytes) {
    if (all_ == nullptr || bytes == bytes_) return false;
    const int64_t more = bytes - std::exchange(bytes_, bytes);
    all_->Add(more);
    return more > 0;
  }
  // Charges `all` for the bytes from now on.
  void MoveTo(const std::shared_ptr<IncompleteRequestBytes>& all) {
    if (all == all_) return;
    const int64_t bytes = bytes_;
    Set(0);
    all_ = all;
    Set(bytes);
  }
  int64_t bytes() const { return bytes_; }
  const std::shared_ptr<IncompleteRequestBytes>& all() const { return all_; }

 private:
  std::shared_ptr<IncompleteRequestBytes> all_;
  int64_t bytes_ = 0;
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_LIMITS_INCOMPLETE_REQUEST_BYTES_H_
