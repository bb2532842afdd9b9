#include "worker/service/descriptor_quota.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

// 64-bit: `count` is what a client asked for.
bool Over(int held, int count, int limit) { return limit > 0 && int64_t{held} + count > limit; }

}  // namespace

absl::StatusOr<HeldDescriptors> HeldDescriptors::Take(std::shared_ptr<DescriptorShare> share,
                                                      int count, absl::string_view what) {
  DescriptorQuota& quota = *share->quota_;
  const DescriptorLimits& limits = quota.limits_;
  {
    MutexLock lock(&quota.mutex_);
    if (Over(share->held_, count, limits.max_per_session)) {
      return absl::ResourceExhaustedError(absl::StrCat(
          what, " takes ", count, " file descriptors; ", share->owner_, " ", share->held_, " of ",
          limits.max_per_session, " (--max-descriptors-per-session)"));
    }
    if (Over(quota.held_, count, limits.max_in_all)) {
      return absl::ResourceExhaustedError(
          absl::StrCat(what, " takes ", count, " file descriptors; all sessions hold ", quota.held_,
                       " of ", limits.max_in_all, " (--max-descriptors)"));
    }
    share->held_ += count;
    quota.held_ += count;
  }
  return HeldDescriptors(std::move(share), count);
}

HeldDescriptors::~HeldDescriptors() {
  if (share_ == nullptr) return;
  MutexLock lock(&share_->quota_->mutex_);
  share_->held_ -= count_;
  share_->quota_->held_ -= count_;
}

}  // namespace cohort::worker
