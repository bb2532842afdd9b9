// Receipts of answers that arrived, and operations whose answers were given up, until the
// coordinator learns of them.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_RECEIPTS_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_RECEIPTS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "cohort/v1/common.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"

namespace cohort::client {

// Confined to one thread at a time.
class Receipts {
 public:
  // The most receipts of one request: few bytes, compared with its values.
  static constexpr int kMaxPerRequest = 1024;
  static constexpr int kMaxAbandonedPerRequest = 256;
  // The most that are kept while the coordinator is away.
  static constexpr size_t kMostAbandoned = 1 << 16;

  // Whether a request takes a value that no other call gets.
  template <typename Request>
  static constexpr bool kTakes =
      std::is_same_v<Request, v1::QueuePopRequest> || std::is_same_v<Request, v1::ReceiveRequest>;
  // Whether a call that ended so may have taken a value, whose answer is lost: also if a later
  // attempt was refused. The other errors are answers.
  static bool MayBeLost(const absl::Status& status) {
    switch (status.code()) {
      case absl::StatusCode::kCancelled:
      case absl::StatusCode::kDeadlineExceeded:
      case absl::StatusCode::kUnavailable:
      case absl::StatusCode::kAborted:
      case absl::StatusCode::kResourceExhausted:
      case absl::StatusCode::kInternal:
      case absl::StatusCode::kUnknown:
        return true;
      default:
        return false;
    }
  }

  void Add(int64_t receipt) {
    if (receipt != 0) pending_.push_back(receipt);
  }
  // The answer to this operation is given up: the coordinator puts back the value that it took.
  void Abandon(const std::string& operation) {
    // The oldest ones expire in the end.
    if (abandoned_.size() == kMostAbandoned) abandoned_.pop_front();
    abandoned_.push_back(operation);
  }
  // Moves pending ones into a request that is about to leave.
  void Ride(v1::Scope* scope) {
    while (!pending_.empty() && scope->acknowledged_receipts_size() < kMaxPerRequest) {
      scope->add_acknowledged_receipts(pending_.front());
      pending_.pop_front();
    }
    while (!abandoned_.empty() && scope->abandoned_operations_size() < kMaxAbandonedPerRequest) {
      *scope->add_abandoned_operations() = std::move(abandoned_.front());
      abandoned_.pop_front();
    }
  }
  // That request failed: they go with another.
  void Return(const v1::Scope& scope) {
    pending_.insert(pending_.begin(), scope.acknowledged_receipts().begin(),
                    scope.acknowledged_receipts().end());
    abandoned_.insert(abandoned_.begin(), scope.abandoned_operations().begin(),
                      scope.abandoned_operations().end());
  }
  static bool HasAny(const v1::Scope& scope) {
    return scope.acknowledged_receipts_size() > 0 || scope.abandoned_operations_size() > 0;
  }
  void Clear() {
    pending_.clear();
    abandoned_.clear();
  }
  bool empty() const { return pending_.empty() && abandoned_.empty(); }

 private:
  std::deque<int64_t> pending_;
  std::deque<std::string> abandoned_;  // operation ids
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_RECEIPTS_H_
