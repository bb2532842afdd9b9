#include "worker/communicator/nccl/agreement/issue_order.h"

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

// The time between two checks whether the group still stands.
constexpr absl::Duration kLook = absl::Milliseconds(20);

// Devices count operations: no device is this far ahead.
constexpr int64_t kFurthest = int64_t{1} << 40;

}  // namespace

IssueOrder& IssueOrder::Of(int device) {
  static Mutex* const mutex = new Mutex;
  static auto* const orders = new std::map<int, std::unique_ptr<IssueOrder>>;
  MutexLock lock(mutex);
  std::unique_ptr<IssueOrder>& order = (*orders)[device];
  if (order == nullptr) order.reset(new IssueOrder(device));
  return *order;
}

void IssueOrder::Count(int change) {
  MutexLock lock(&mutex_);
  groups_ += change;
}

int IssueOrder::groups() const {
  MutexLock lock(&mutex_);
  return groups_;
}

IssueOrder::Ticket IssueOrder::Propose(uint64_t key) {
  MutexLock lock(&mutex_);
  pending_[++last_] = {++clock_, key};
  return Ticket(this, last_);
}

int64_t IssueOrder::Ticket::proposed() const {
  MutexLock lock(&order_->mutex_);
  return order_->pending_.at(number_).first;
}

absl::Status IssueOrder::Ticket::Await(int64_t agreed, absl::FunctionRef<absl::Status()> standing,
                                       Instant deadline) {
  {
    MutexLock lock(&order_->mutex_);
    const int64_t proposed = order_->pending_.at(number_).first;
    if (agreed < proposed || agreed - proposed > kFurthest) {
      return absl::AbortedError(absl::StrCat("a rank proposes the number ", agreed,
                                             " for an operation, expected ", proposed, " to ",
                                             proposed + kFurthest));
    }
    order_->pending_.at(number_).first = agreed;
    order_->clock_ = std::max(order_->clock_, agreed);
    order_->changed_.SignalAll();
  }
  while (true) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    {
      MutexLock lock(&order_->mutex_);
      if (order_->IsFirst(number_)) return absl::OkStatus();
      if (left > absl::ZeroDuration()) {
        order_->changed_.WaitWithTimeout(&order_->mutex_, std::min(kLook, left));
        if (order_->IsFirst(number_)) return absl::OkStatus();
      }
    }
    if (left <= absl::ZeroDuration()) {
      return absl::DeadlineExceededError(
          absl::StrCat("another group's operation, which comes before this one on device ",
                       order_->device_, ", was not issued"));
    }
    COHORT_RETURN_IF_ERROR(standing());
  }
}

bool IssueOrder::IsFirst(int64_t number) const {
  const Position& own = pending_.at(number);
  return std::none_of(pending_.begin(), pending_.end(),
                      [&](const auto& other) { return other.second < own; });
}

void IssueOrder::Leave(int64_t number) {
  MutexLock lock(&mutex_);
  pending_.erase(number);
  changed_.SignalAll();
}

}  // namespace cohort::worker
