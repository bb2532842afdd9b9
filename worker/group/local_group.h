// A group in which this process is a rank.
#ifndef COHORT_WORKER_GROUP_LOCAL_GROUP_H_
#define COHORT_WORKER_GROUP_LOCAL_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/rpc/rank_tls.h"
#include "client/collective/trace/flight_record.h"
#include "client/rendezvous/process_group/process_group.h"
#include "worker/group/bootstrap/group_bootstrap.h"
#include "worker/group/flight_recorder/tensor_wait_reporter.h"
#include "worker/group/in_process_group.h"
#include "worker/group/membership/rank_membership.h"

namespace cohort::worker {

struct LocalGroupOptions {
  // The membership: coordinator, name of the group, rank, world size, lease and so on.
  client::ProcessGroupOptions membership;
  // How ranks find each other. Without a heap: the heap of the process.
  BootstrapOptions bootstrap;
  // TLS on sockets to other hosts. Absent: as the environment says (RankTlsOfEnvironment).
  std::optional<RankTls> tls;
  absl::Duration timeout = absl::Seconds(300);  // for calls without their own
  // This rank's GPU; the host placement ignores it.
  std::shared_ptr<GpuContext> gpu_context;
  // For a process that runs calls for others: a waiting rank yields the processor to the threads
  // that bring the next call.
  bool gives_way = false;
  // Called, on any thread, when a generation has ended by itself; at most once for each. It must
  // not block, nor call the group.
  std::function<void(int64_t generation, const std::string& cause)> on_end;
};

// The calling thread executes its share of each operation; the coordinator takes no part.
//
// When a rank dies, its connections show it, within milliseconds on the same host, and the
// coordinator notices too. Calls of all other ranks then end with ABORTED, which names that rank.
// Rejoin forms the next generation from the ranks that join it. A rank that leaves in order ends
// only the calls that need it: collectives, and messages to or from it.
class LocalGroup final : public InProcessGroup {
 public:
  // Joins the group, waits until it is complete, and connects the ranks. Errors: those of
  // ProcessGroup::Create, ConnectRanks, SecureConnections and GpuContext::Form; FAILED_PRECONDITION
  // (a placement on devices without a GPU).
  static absl::StatusOr<std::unique_ptr<LocalGroup>> Create(LocalGroupOptions options);
  // Leaves. Before that it waits at most one second until its messages and broadcasts have arrived.
  ~LocalGroup() override;

  // Joins the next generation, after ABORTED or DEADLINE_EXCEEDED. Tensors stay valid.
  absl::Status Rejoin(absl::Duration timeout = absl::Seconds(60)) override;

  // The last calls of this rank, for a file (client::WriteFlightRecords) that `cohort trace` reads:
  // this process does not serve them. Any thread may call it, also during another call.
  client::FlightRecord ExportFlightRecord() const;

  client::ProcessGroup& membership() { return membership_->process_group(); }

  const std::string& name() const override { return membership_->process_group().group(); }
  int64_t generation() const override { return membership_->process_group().generation(); }
  int rank() const override { return membership_->process_group().rank(); }
  int size() const override { return membership_->process_group().world_size(); }

  Placement placement() const override { return options_.bootstrap.placement; }
  Device device() const override {
    return options_.gpu_context == nullptr ? Device::Host() : options_.gpu_context->device();
  }

  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape, Device device = {}) override;

  absl::Status SendObject(absl::string_view object, int destination,
                          const client::CallOptions& options) override;
  absl::StatusOr<std::string> ReceiveObject(int source,
                                            const client::CallOptions& options) override;
  absl::StatusOr<std::string> BroadcastObject(absl::string_view object, int root,
                                              const client::CallOptions& options) override;
  absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(
      absl::Span<const int> members, absl::string_view object,
      const client::CallOptions& options) override;
  absl::StatusOr<std::vector<std::string>> AllGatherObjects(
      absl::string_view object, const client::CallOptions& options) override;
  void Abort(const absl::Status& cause) override;

 private:
  explicit LocalGroup(LocalGroupOptions options)
      : InProcessGroup(options.timeout), options_(std::move(options)) {}

  GpuContext* gpu_context() const override { return options_.gpu_context.get(); }
  absl::Status Form(Connections connections, Instant deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);

  LocalGroupOptions options_;
  const std::shared_ptr<TensorWaitReporter> reporter_ = std::make_shared<TensorWaitReporter>();
  std::unique_ptr<RankMembership> membership_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_LOCAL_GROUP_H_
