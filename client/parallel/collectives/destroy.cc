#include "client/parallel/collectives/destroy.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/threads/notification.h"
#include "base/threads/thread.h"

namespace cohort::parallel {

absl::Status Destroy(std::shared_ptr<client::Group> group, absl::Duration timeout) {
  if (group == nullptr) return absl::OkStatus();
  const std::string who = absl::StrCat("rank ", group->rank(), " of group ", group->name());
  const std::weak_ptr<client::Group> left = group;
  const auto gone = std::make_shared<Notification>();
  const absl::Status started =
      StartDetachedThread("cohort-destroy", [gone, group = std::move(group)]() mutable {
        group.reset();
        gone->Notify();
      });
  // Without a thread the share has been dropped here.
  if (started.ok() && !gone->WaitWithTimeout(timeout)) {
    return absl::DeadlineExceededError(
        absl::StrCat(who, ": not yet freed after ", absl::FormatDuration(timeout)));
  }
  if (left.expired()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(who, ": not freed, because the group has other owners: ", left.use_count()));
}

}  // namespace cohort::parallel
