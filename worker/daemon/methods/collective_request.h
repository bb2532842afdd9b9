// Runs one RunCollective request: finds its tensors and calls its collective.
#ifndef COHORT_WORKER_DAEMON_METHODS_COLLECTIVE_REQUEST_H_
#define COHORT_WORKER_DAEMON_METHODS_COLLECTIVE_REQUEST_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "base/collective/collective_call.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "cohort/v1/worker.pb.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/tensors/tensor_table.h"

namespace cohort::worker {

// Tensors lie in the session's table, in the request or in the response. One thread.
class CollectiveRequest {
 public:
  // A request of 65,536 tensors or transfers has room for 32 each; elements of lists count, too.
  static constexpr int kMostFields = 32 * 65536;

  // All arguments outlive it. All inline outputs together have at most `max_inline_bytes`. `memory`
  // counts the request and its inline outputs, unless they are small.
  CollectiveRequest(const TensorTable& tensors, int64_t max_inline_bytes,
                    const v1::RunCollectiveRequest& request, v1::RunCollectiveResponse* response,
                    HeldQuota& memory);

  // If the request of a collective is invalid, all ranks get the error: see
  // Group::FailCollectiveAs. For messages, only this rank gets it; NOT_FOUND (a tensor of the
  // request) is possible then. If `memory` has no room, the call has not begun, and the client may
  // repeat it. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (inline outputs too large; those of
  // `memory`), those of the collective.
  absl::Status Run(client::Group& group, const client::CallOptions& options);
  // The bytes of the largest tensor of the call.
  int64_t bytes() const { return bytes_; }

 private:
  // Reads the arguments of the collective.
  absl::Status ReadArguments(int rank);
  absl::Status RunCollective(client::Group& group, const client::CallOptions& options);
  absl::Status Exchange(client::Group& group, const client::CallOptions& options);

  // Returns the input for reads; without one, an empty tensor.
  absl::StatusOr<Tensor> Input();
  // Returns the output for writes; without one, an empty tensor.
  absl::StatusOr<Tensor> Output();
  absl::StatusOr<Tensor> ReadOnly(const v1::TensorRef& ref);
  absl::StatusOr<Tensor> Writable(const v1::TensorRef& ref, std::string* inline_bytes);
  // Returns a broadcast's tensor: for reads at the root, for writes elsewhere.
  absl::StatusOr<Tensor> BroadcastTensor(bool root);
  absl::StatusOr<Tensor> Resident(const v1::TensorRef& ref);
  // Counts the memory of the request, and `bytes` of an output.
  absl::Status CountRequest();
  absl::Status CountOutput(int64_t bytes);
  absl::StatusOr<Reduction> ReadReduction() const;

  const TensorTable& tensors_;
  int64_t inline_left_;
  const v1::RunCollectiveRequest& request_;
  const Collective collective_;  // kUnknown: this version does not know the request's number
  v1::RunCollectiveResponse* const response_;
  HeldQuota& memory_;
  int64_t small_outputs_ = 0;  // bytes that `memory_` does not count yet
  bool has_room_ = true;       // in `memory_`
  KeptCall call_;
  int64_t bytes_ = 0;
};

// "send_object", ...; for metrics. "unknown" for a number without a name.
const char* NameOf(v1::ObjectOperation operation);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_COLLECTIVE_REQUEST_H_
