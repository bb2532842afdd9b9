#include "client/parallel/collectives/destroy.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/notification.h"
#include "base/thread.h"

namespace cohort::parallel {

absl::Status Destroy(std::unique_ptr<client::Group> group, absl::Duration timeout) {
  if (group == nullptr) return absl::OkStatus();
  const std::string who = absl::StrCat("rank ", group->rank(), " of group ", group->name());
  const auto gone = std::make_shared<Notification>();
  const absl::Status started =
      StartDetachedThread("cohort-destroy", [gone, group = std::move(group)]() mutable {
        group.reset();
        gone->Notify();
      });
  // Without a thread the group has been destroyed here.
  if (!started.ok()) return absl::OkStatus();
  if (gone->WaitWithTimeout(timeout)) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat(who, ": not yet freed after ", absl::FormatDuration(timeout)));
}

}  // namespace cohort::parallel
