// Records the calls of collectives instead of running them.
#ifndef COHORT_CLIENT_COLLECTIVE_RECORDING_H_
#define COHORT_CLIENT_COLLECTIVE_RECORDING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "client/collective/sequence.h"

namespace cohort::client {

struct RecordedCall {
  // The same on all ranks. Empty for messages, on which only their two ranks agree.
  std::string text;
  bool on_gpu = false;
  // Keeps its arguments.
  std::function<absl::Status(Group&, const CallOptions&)> run;
};
using RecordedCalls = std::vector<RecordedCall>;

// Returns the calls that `body` makes on the group that it gets, which only records them. All ranks
// of `group` call it. Errors: body's; FAILED_PRECONDITION (a call that cannot be recorded);
// INVALID_ARGUMENT, on all ranks alike (they recorded different calls; names the first); and those
// of Group::ExchangeSizes.
absl::StatusOr<RecordedCalls> RecordCalls(Group& group,
                                          absl::FunctionRef<absl::Status(Group&)> body,
                                          const CallOptions& options);

// A digest of the parts that must be the same on all ranks; not negative.
int64_t DigestOf(const RecordedCalls& calls);

// FAILED_PRECONDITION: the group is in another generation than the sequence.
absl::Status EndedSequence(const Group& group, int64_t generation);

// Runs the calls one after the other. `group` outlives it.
std::unique_ptr<Sequence> SequenceOfCalls(Group& group, RecordedCalls calls);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_RECORDING_H_
