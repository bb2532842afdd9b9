// Records the calls of collectives on GPUs instead of running them.
#ifndef COHORT_CLIENT_COLLECTIVE_RECORDING_H_
#define COHORT_CLIENT_COLLECTIVE_RECORDING_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"

namespace cohort::client {

struct RecordedCall {
  // The same on all ranks. Empty for messages, on which only their two ranks agree.
  std::string text;
  // Keeps its arguments.
  std::function<absl::Status(Group&, const CallOptions&)> run;
};
using RecordedCalls = std::vector<RecordedCall>;

// Returns the calls that `body` makes on the group that it gets, which only records them. All ranks
// of `group` call it. Errors: body's; FAILED_PRECONDITION (a call that cannot be recorded, such as
// one on host memory); INVALID_ARGUMENT, on all ranks alike (they recorded different calls; names
// the first); and those of Group::ExchangeSizes.
absl::StatusOr<RecordedCalls> RecordCalls(Group& group,
                                          absl::FunctionRef<absl::Status(Group&)> body,
                                          const CallOptions& options);

// A digest of the parts that must be the same on all ranks; not negative.
int64_t DigestOf(const RecordedCalls& calls);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_RECORDING_H_
