// Records the calls of collectives on GPUs instead of running them.
#ifndef COHORT_CLIENT_COLLECTIVE_RECORD_CALLS_H_
#define COHORT_CLIENT_COLLECTIVE_RECORD_CALLS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"

namespace cohort::client {

// A collective or an Exchange with its arguments, which it keeps.
class RecordedCall {
 public:
  explicit RecordedCall(KeptCall call) : kept_(std::move(call)) {}
  explicit RecordedCall(absl::Span<const TensorTransfer> transfers);

  // Whether it is an Exchange, on which only the two ranks of each message agree.
  bool is_message() const { return kept_.call.collective == Collective::kExchange; }
  bool on_gpu() const { return kept_.call.on_gpus; }
  // The call as all ranks make it: its dimension counts from the front, and the sizes in which
  // ranks may differ are left out. It refers to this object.
  CollectiveCall Common() const;

  absl::Status Run(Group& group, const CallOptions& options) const;

 private:
  KeptCall kept_;
  std::vector<TensorTransfer> transfers_;
};
using RecordedCalls = std::vector<RecordedCall>;

// Returns the calls that `body` makes on the group that it gets, which only records them. All ranks
// of `group` call it. Errors: body's; FAILED_PRECONDITION (a call that cannot be recorded, such as
// one on host memory); INVALID_ARGUMENT, on all ranks alike (they recorded different calls; names
// the first); and those of Group::ExchangeSizes.
absl::StatusOr<RecordedCalls> RecordCalls(Group& group,
                                          absl::FunctionRef<absl::Status(Group&)> body,
                                          const CallOptions& options);

// A digest of the calls that all ranks make; not negative.
int64_t DigestOf(const RecordedCalls& calls);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_RECORD_CALLS_H_
