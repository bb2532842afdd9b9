// Gathers objects from some members of a group: see client::Group::AllGatherObjectsOf.
#ifndef COHORT_WORKER_GROUP_MEMBERSHIP_GATHER_MEMBER_OBJECTS_H_
#define COHORT_WORKER_GROUP_MEMBERSHIP_GATHER_MEMBER_OBJECTS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/rendezvous/process_group/process_group.h"

namespace cohort::worker {

// Runs one round at the coordinator, under a name for this set of members. Errors: INVALID_ARGUMENT
// (`members` are not ascending ranks of the group with `member` among them); those of
// ProcessGroup::AllGather.
absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(client::ProcessGroup& member,
                                                            absl::Span<const int> members,
                                                            absl::string_view object,
                                                            absl::Duration timeout);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_MEMBERSHIP_GATHER_MEMBER_OBJECTS_H_
