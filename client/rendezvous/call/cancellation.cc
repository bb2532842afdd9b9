#include "client/rendezvous/call/cancellation.h"

#include <utility>

namespace cohort::client {
namespace {

thread_local Cancellation* current_cancellation = nullptr;

}  // namespace

void Cancellation::Cancel(const absl::Status& reason) {
  MutexLock lock(&mutex_);
  if (!reason_.ok()) return;
  reason_ = reason;
  for (const Listener* listener : listeners_) listener->on_cancel_(reason_);
  listeners_.clear();
}

absl::Status Cancellation::reason() const {
  MutexLock lock(&mutex_);
  return reason_;
}

Cancellation::Listener::Listener(Cancellation& cancellation,
                                 std::function<void(const absl::Status& reason)> on_cancel)
    : cancellation_(cancellation), on_cancel_(std::move(on_cancel)) {
  MutexLock lock(&cancellation_.mutex_);
  if (cancellation_.reason_.ok()) {
    cancellation_.listeners_.insert(this);
  } else {
    on_cancel_(cancellation_.reason_);
  }
}

Cancellation::Listener::~Listener() {
  // Waits for a running Cancel.
  MutexLock lock(&cancellation_.mutex_);
  cancellation_.listeners_.erase(this);
}

CancellationScope::CancellationScope(Cancellation& cancellation)
    : outer_(std::exchange(current_cancellation, &cancellation)) {}

CancellationScope::~CancellationScope() { current_cancellation = outer_; }

Cancellation* CancellationScope::current() { return current_cancellation; }

absl::Status CallCancellations::reason() const {
  for (const Cancellation* const each : all_) {
    if (each == nullptr) continue;
    if (absl::Status reason = each->reason(); !reason.ok()) return reason;
  }
  return absl::OkStatus();
}

CallCancellations::Listener::Listener(const CallCancellations& cancellations,
                                      const std::function<void()>& on_cancel) {
  for (size_t i = 0; i < cancellations.all_.size(); ++i) {
    if (cancellations.all_[i] == nullptr) continue;
    listeners_[i].emplace(*cancellations.all_[i], [on_cancel](const absl::Status&) { on_cancel(); });
  }
}

}  // namespace cohort::client
