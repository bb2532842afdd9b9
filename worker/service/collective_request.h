// One RunCollective: its tensors found, its verb called.
#ifndef COHORT_WORKER_SERVICE_COLLECTIVE_REQUEST_H_
#define COHORT_WORKER_SERVICE_COLLECTIVE_REQUEST_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "cohort/v1/worker.pb.h"
#include "worker/service/tensor_table.h"

namespace cohort::worker {

// Tensors lie in the session's table, in the request or in the response. One thread.
class CollectiveRequest {
 public:
  // All of them outlive it. An inline output has at most `max_inline_bytes`.
  CollectiveRequest(const TensorTable& tensors, int64_t max_inline_bytes,
                    const v1::RunCollectiveRequest& request, v1::RunCollectiveResponse* response);

  // What is wrong with the request, of a verb of all ranks that blocks, all of them hear: see
  // Group::Refuse. Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (inline outputs too large), those
  // of the verb; where nobody hears it, NOT_FOUND, too (a tensor of the request).
  absl::Status Run(client::Group& group, const client::CallOptions& options);
  // Of the larger of input and output.
  int64_t bytes() const { return bytes_; }
  // What the tensors of the table live by, of a call that may not be done when it returns: on a
  // stream, or, where it fails, on a device.
  std::vector<std::shared_ptr<const void>> TakeOwners() { return std::move(owners_); }

 private:
  // What the verb is called with.
  absl::Status ReadArguments(int rank);
  absl::Status RunCollective(client::Group& group, const client::CallOptions& options);
  static absl::Status TellRefusal(client::Group& group, const absl::Status& why,
                                  const client::CallOptions& options);
  absl::Status Exchange(client::Group& group, const client::CallOptions& options);

  // Only read. Absent: of no elements.
  absl::StatusOr<Tensor> Input();
  // Written to; absent: of no elements.
  absl::StatusOr<Tensor> Output();
  absl::StatusOr<Tensor> ReadOnly(const v1::TensorRef& ref);
  absl::StatusOr<Tensor> Writable(const v1::TensorRef& ref, std::string* inline_bytes);
  // Of a broadcast: read at the root, written elsewhere.
  absl::StatusOr<Tensor> BroadcastTensor(bool root);
  absl::StatusOr<Tensor> Resident(const v1::TensorRef& ref);
  // On the group's device.
  absl::StatusOr<Tensor> Empty(const v1::TensorRef& ref) const;
  absl::StatusOr<Reduction> ReadReduction() const;

  const TensorTable& tensors_;
  int64_t inline_left_;
  const v1::RunCollectiveRequest& request_;
  v1::RunCollectiveResponse* const response_;
  Device device_;  // the group's
  Reduction reduction_;
  Tensor input_;
  Tensor output_;
  int64_t bytes_ = 0;
  std::vector<std::shared_ptr<const void>> owners_;
};

// "all_reduce", ...; for metrics and records. "unknown" for a number without a name.
const char* NameOf(v1::Collective collective);
const char* NameOf(v1::ObjectVerb verb);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_COLLECTIVE_REQUEST_H_
