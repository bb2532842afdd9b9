// Creates this rank's end of a group that other code has planned. The planner knows the groups and
// their members; the factory knows the form of the rank.
#ifndef COHORT_CLIENT_COLLECTIVE_GROUP_FACTORY_H_
#define COHORT_CLIENT_COLLECTIVE_GROUP_FACTORY_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/collective/group.h"

namespace cohort::client {

// A rank of a group, and the fields that are the same for all its ranks.
struct PlannedRank {
  std::string name;
  int rank = 0;
  int world_size = 1;
  std::string parameters_digest;
  // Limits each wait while the group forms.
  absl::Duration timeout = absl::Seconds(300);
};

// Blocks until the group is complete. One call at a time. Errors: those of the form's Create.
//
// Ready ones: worker/group/local_group_factory.h, worker/group/attached_group_factory.h,
// client/collective/remote/remote_group_factory.h.
using GroupFactory =
    std::function<absl::StatusOr<std::unique_ptr<Group>>(const PlannedRank& place)>;

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_GROUP_FACTORY_H_
