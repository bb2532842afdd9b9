// A group whose membership a worker daemon keeps, and whose calls the calling thread executes.
#ifndef COHORT_WORKER_GROUP_ATTACHED_GROUP_H_
#define COHORT_WORKER_GROUP_ATTACHED_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls/tls_context.h"
#include "client/collective/remote/remote_group.h"
#include "worker/group/gpu/gpu_context.h"
#include "worker/group/in_process_group.h"

namespace cohort::worker {

// As fast as LocalGroup, with the supervision of a daemon. The daemon joins the group, connects to
// the other ranks, renews the lease and watches all ranks and this process. It sends memory and
// sockets, and reports the end of a generation. So the daemon runs on the host of its client and as
// the same user.
//
// When this process dies, the daemon names it to the other ranks. When the daemon dies, calls end
// with ABORTED, which names the daemon; the group then needs another session.
class AttachedGroup final : public InProcessGroup {
 public:
  // `gpu` is this rank's GPU, on which this process computes; the host placement ignores it.
  // Errors: those of RemoteGroup::Create, ReceiveConnections, SecureConnections and
  // GpuContext::Form;
  // FAILED_PRECONDITION (no memory is shared with the worker, with the reason; a placement on
  // devices without a GPU).
  static absl::StatusOr<std::unique_ptr<AttachedGroup>> Create(
      client::RemoteGroupOptions options, std::shared_ptr<GpuContext> gpu = nullptr);
  // Leaves the group.
  ~AttachedGroup() override;

  // Like LocalGroup::Rejoin.
  absl::Status Rejoin(absl::Duration timeout = absl::Seconds(60)) override;

  const std::string& name() const override { return membership_->name(); }
  int64_t generation() const override { return membership_->generation(); }
  int rank() const override { return membership_->rank(); }
  int size() const override { return membership_->size(); }

  Placement placement() const override { return placement_; }
  Device device() const override { return gpu_ == nullptr ? Device::Host() : gpu_->device(); }

  void Abort(const absl::Status& cause) override;
  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape, Device device = {}) override;

  absl::Status SendObject(absl::string_view object, int destination,
                          const client::CallOptions& options) override {
    return membership_->SendObject(object, destination, options);
  }
  absl::StatusOr<std::string> ReceiveObject(int source,
                                            const client::CallOptions& options) override {
    return membership_->ReceiveObject(source, options);
  }
  absl::StatusOr<std::string> BroadcastObject(absl::string_view object, int root,
                                              const client::CallOptions& options) override {
    return membership_->BroadcastObject(object, root, options);
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjects(
      absl::string_view object, const client::CallOptions& options) override {
    return membership_->AllGatherObjects(object, options);
  }
  absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(
      absl::Span<const int> members, absl::string_view object,
      const client::CallOptions& options) override {
    return membership_->AllGatherObjectsOf(members, object, options);
  }

 private:
  AttachedGroup(std::unique_ptr<client::RemoteGroup> membership, absl::Duration timeout,
                Tensor flight_record, Placement placement, std::shared_ptr<GpuContext> gpu,
                TlsFiles tls_files);

  GpuContext* gpu_context() const override { return gpu_.get(); }
  // Takes over the worker's connections of the present generation, and puts TLS on the sockets if
  // the ranks use it. If the placement includes devices, forms the group there too.
  absl::Status Take(absl::Duration timeout, absl::Duration forming_timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Stops the reports of the generation's end.
  void StopWatching();

  const std::unique_ptr<client::RemoteGroup> membership_;
  const Tensor flight_record_;
  const Placement placement_;
  const std::shared_ptr<GpuContext> gpu_;
  const TlsFiles tls_files_;  // for sockets to other hosts
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_ATTACHED_GROUP_H_
