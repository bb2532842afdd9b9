#include "worker/daemon/limits/quota.h"

#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

// Without a sum that could overflow: `count` comes from a client.
bool Over(int64_t held, int64_t count, int64_t limit) { return limit > 0 && count > limit - held; }

}  // namespace

absl::StatusOr<HeldQuota> HeldQuota::Take(std::shared_ptr<QuotaShare> share, int64_t count,
                                          absl::string_view what) {
  HeldQuota held(std::move(share));
  const absl::Status taken = held.Resize(count, what);
  if (!taken.ok()) return taken;
  return held;
}

absl::Status HeldQuota::Resize(int64_t count, absl::string_view what) {
  if (share_ == nullptr) return absl::OkStatus();
  MutexLock lock(&share_->quota_->mutex_);
  return Change(0, count, what);
}

absl::Status HeldQuota::Add(int64_t more, absl::string_view what) {
  if (share_ == nullptr) return absl::OkStatus();
  MutexLock lock(&share_->quota_->mutex_);
  return Change(count_, more, what);
}

absl::Status HeldQuota::Change(int64_t base, int64_t taken, absl::string_view what) {
  if (waived_) return absl::OkStatus();
  Quota& quota = *share_->quota_;
  const QuotaLimits& limits = quota.limits_;
  const int64_t more = base + taken - count_;
  const int64_t held = share_->held_ - count_ + base;
  const int64_t held_in_all = quota.held_ - count_ + base;
  const auto refuse = [&](const auto&... who) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " takes ", taken, " ", quota.unit_.name, "; ", who...));
  };
  if (more > 0 && Over(held, taken, limits.max_per_session)) {
    return refuse(share_->owner_, " ", held, " of ", limits.max_per_session, " (",
                  quota.unit_.session_flag, ")");
  }
  if (more > 0 && limits.max_in_all > 0) {
    const auto full = quota.by_payer_.WhoIsFull(share_->payer_, more, limits.max_in_all);
    if (full.has_value()) {
      return refuse(full->who, " holds ", full->has - count_ + base, " of ", full->most,
                    ", as many as one ", full->kind, " may have of ", quota.unit_.flag);
    }
  }
  if (more > 0 && Over(held_in_all, taken, limits.max_in_all)) {
    return refuse("all sessions hold ", held_in_all, " of ", limits.max_in_all, " (",
                  quota.unit_.flag, ")");
  }
  share_->held_ += more;
  quota.held_ += more;
  quota.by_payer_.Add(share_->payer_, more);
  count_ += more;
  return absl::OkStatus();
}

void HeldQuota::Waive() {
  if (share_ == nullptr) return;
  MutexLock lock(&share_->quota_->mutex_);
  share_->held_ -= count_;
  share_->quota_->held_ -= count_;
  share_->quota_->by_payer_.Add(share_->payer_, -count_);
  count_ = 0;
  waived_ = true;
}

}  // namespace cohort::worker
