// How a process takes its rank in a group: by itself, or through a worker daemon.
#ifndef COHORT_CLIENT_PYTHON_CORE_GROUP_FORM_H_
#define COHORT_CLIENT_PYTHON_CORE_GROUP_FORM_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "client/collective/group_factory.h"
#include "client/collective/remote/remote_group.h"
#include "client/python/core/convert.h"
#include "client/rendezvous/call/cancellation.h"
#include "worker/group/gpu/gpu_context.h"
#include "worker/group/local_group.h"

namespace cohort::python {

// The options of one group, which the groups of its layouts have, too.
class GroupForm {
 public:
  // Returns false with an exception: TypeError, or ValueError (an option that a rank in a daemon
  // does not have).
  bool Read(Options& options);
  // For calls without their own.
  absl::Duration timeout() const { return local_.timeout; }

  // Opens the GPU, connects to the daemon, and joins. Blocks until the group is complete or
  // `cancellation` is cancelled. Errors: those of OpenGpu, WorkerSession::Connect, and Create of
  // worker::LocalGroup, worker::AttachedGroup or client::RemoteGroup.
  absl::StatusOr<std::unique_ptr<client::Group>> Join(
      std::shared_ptr<client::Cancellation> cancellation);
  // Makes groups of the same form, until `cancellation` is cancelled, which is also that of the
  // thread's CancellationScope. After Join.
  client::GroupFactory Factory(std::shared_ptr<client::Cancellation> cancellation) const;

  // For calls that block: waits until the work on `stream`, that of the arrays of the call, is done.
  // Absent: they are in host memory. Errors: those of worker::GpuContext::AwaitStream.
  absl::Status AwaitStream(std::optional<void*> stream, const client::CallOptions& options) const;

 private:
  bool ReadWorker(Options& options);
  absl::Status OpenGpu();

  worker::LocalGroupOptions local_;
  // A rank in a daemon: its membership is that of `local_`.
  std::optional<client::RemoteGroupOptions> remote_;
  // The GPU, by CUDA's number.
  std::optional<int> device_;
  worker::GpuContextOptions gpu_options_;
  std::string nccl_library_;
  std::shared_ptr<worker::GpuContext> gpu_;
};

}  // namespace cohort::python

#endif  // COHORT_CLIENT_PYTHON_CORE_GROUP_FORM_H_
