#include "worker/daemon/limits/descriptor_quota.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

// In 64 bits, because `count` comes from a client.
bool Over(int held, int count, int limit) { return limit > 0 && int64_t{held} + count > limit; }

}  // namespace

absl::StatusOr<HeldDescriptors> HeldDescriptors::Take(std::shared_ptr<DescriptorShare> share,
                                                      int count, absl::string_view what) {
  HeldDescriptors held(std::move(share));
  const absl::Status taken = held.Resize(count, what);
  if (!taken.ok()) return taken;
  return held;
}

absl::Status HeldDescriptors::Resize(int count, absl::string_view what) {
  if (share_ == nullptr) return absl::OkStatus();
  DescriptorQuota& quota = *share_->quota_;
  const DescriptorLimits& limits = quota.limits_;
  MutexLock lock(&quota.mutex_);
  const int others = share_->held_ - count_;
  const int others_in_all = quota.held_ - count_;
  if (count > count_ && Over(others, count, limits.max_per_session)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, " takes ", count, " file descriptors; ", share_->owner_, " ", others, " of ",
        limits.max_per_session, " (--max-descriptors-per-session)"));
  }
  const std::string& identity = share_->identity_;
  if (count > count_ && limits.max_in_all > 0 &&
      !quota.by_identity_.HasRoom(identity, count - count_, limits.max_in_all)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        what, " takes ", count, " file descriptors; ", identity, " holds ",
        quota.by_identity_.Of(identity) - count_, " of ", IdentityCounts::MostOf(limits.max_in_all),
        ", as many as one identity may have of --max-descriptors"));
  }
  if (count > count_ && Over(others_in_all, count, limits.max_in_all)) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, " takes ", count, " file descriptors; all sessions hold ", others_in_all,
                     " of ", limits.max_in_all, " (--max-descriptors)"));
  }
  share_->held_ = others + count;
  quota.held_ = others_in_all + count;
  quota.by_identity_.Add(identity, count - count_);
  count_ = count;
  return absl::OkStatus();
}

HeldDescriptors::~HeldDescriptors() {
  if (share_ == nullptr) return;
  MutexLock lock(&share_->quota_->mutex_);
  share_->held_ -= count_;
  share_->quota_->held_ -= count_;
  share_->quota_->by_identity_.Add(share_->identity_, -count_);
}

}  // namespace cohort::worker
