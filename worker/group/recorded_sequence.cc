#include "worker/group/recorded_sequence.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/group/in_process_group.h"

namespace cohort::worker {

RecordedSequence::RecordedSequence(InProcessGroup* group, client::RecordedCalls calls,
                                   std::shared_ptr<DeviceReplay> replay)
    : group_(*group),
      calls_(std::move(calls)),
      replay_(std::move(replay)),
      generation_(group->generation()) {}

absl::Status RecordedSequence::Replay(const client::CallOptions& options) {
  if (group_.generation() == generation_) return group_.Replay(*replay_, options);
  return absl::FailedPreconditionError(
      absl::StrCat("a sequence of generation ", generation_, " of group ", group_.name(),
                   ", which is in generation ", group_.generation(), ": record it anew"));
}

}  // namespace cohort::worker
