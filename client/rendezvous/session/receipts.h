// Receipts of answers that arrived and that the coordinator does not know of yet.
#ifndef COHORT_CLIENT_RENDEZVOUS_SESSION_RECEIPTS_H_
#define COHORT_CLIENT_RENDEZVOUS_SESSION_RECEIPTS_H_

#include <cstdint>
#include <deque>

#include "cohort/v1/common.pb.h"

namespace cohort::client {

// Confined to one thread at a time.
class Receipts {
 public:
  // The most receipts of one request: few bytes, compared with its values.
  static constexpr int kMaxPerRequest = 1024;

  void Add(int64_t receipt) {
    if (receipt != 0) pending_.push_back(receipt);
  }
  // Moves pending ones into a request that is about to leave.
  void Ride(v1::Scope* scope) {
    while (!pending_.empty() && scope->acknowledged_receipts_size() < kMaxPerRequest) {
      scope->add_acknowledged_receipts(pending_.front());
      pending_.pop_front();
    }
  }
  // That request failed: they go with another.
  void Return(const v1::Scope& scope) {
    pending_.insert(pending_.begin(), scope.acknowledged_receipts().begin(),
                    scope.acknowledged_receipts().end());
  }
  void Clear() { pending_.clear(); }
  bool empty() const { return pending_.empty(); }

 private:
  std::deque<int64_t> pending_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_SESSION_RECEIPTS_H_
