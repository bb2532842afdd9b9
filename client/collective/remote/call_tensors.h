// How the tensors of a call get to the worker, and its results back.
#ifndef COHORT_CLIENT_COLLECTIVE_REMOTE_CALL_TENSORS_H_
#define COHORT_CLIENT_COLLECTIVE_REMOTE_CALL_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/tensor/tensor.h"
#include "client/collective/remote/worker_session_impl.h"
#include "cohort/v1/worker.pb.h"

namespace cohort::client {

// Returns INVALID_ARGUMENT if the tensor is on a GPU, which a RemoteGroup does not use.
absl::Status CheckInHostMemory(const Tensor& tensor);
// Returns that error about `what`.
absl::Status NoGpus(absl::string_view what);

// Tensors in the worker's memory stay in place. Other small tensors travel with the call. Larger
// ones are copied to the worker's memory, once there and once back: by this process where that
// memory is shared, else as a stream. GPU tensors are refused. One thread uses it.
class CallTensors {
 public:
  CallTensors(WorkerSessionImpl& session, Instant deadline);
  // Memory taken for the call goes back.
  ~CallTensors();

  // Before the call. Errors: those of the worker; INVALID_ARGUMENT (the tensor is on a GPU).
  absl::Status AddInput(const Tensor& tensor, v1::TensorRef* ref);
  absl::Status AddOutput(const Tensor& tensor, v1::TensorRef* ref);
  // For a call in place.
  absl::Status AddInOut(const Tensor& tensor, v1::TensorRef* ref);

  // After the call succeeded: copies the outputs that are not in the worker's memory.
  // `inline_outputs` is in their order.
  absl::Status Finish(const std::vector<const std::string*>& inline_outputs);
  // After the call failed. `answered`: the worker has ended it.
  void Fail(bool answered) { reusable_ = answered; }

 private:
  struct Output {
    Tensor tensor;
    bool is_inline = false;
    size_t scratch = 0;  // index
  };

  absl::Duration Left() const;
  bool Resident(const Tensor& tensor, v1::TensorRef* ref) const;
  // Whether a tensor of `bytes` travels with the call; `left` is the room after it.
  bool FitsInline(int64_t bytes, int64_t& left) const;
  absl::StatusOr<size_t> TakeScratch(const Tensor& tensor, v1::TensorRef* ref);
  absl::Status Upload(const Tensor& tensor, size_t scratch);

  WorkerSessionImpl& session_;
  const Instant deadline_;
  int64_t request_left_;
  int64_t response_left_;
  std::vector<WorkerSessionImpl::Scratch> scratch_;
  std::vector<Output> outputs_;
  bool reusable_ = false;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_REMOTE_CALL_TENSORS_H_
