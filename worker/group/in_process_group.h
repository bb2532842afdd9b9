// The common part of groups whose calls the calling thread executes.
#ifndef COHORT_WORKER_GROUP_IN_PROCESS_GROUP_H_
#define COHORT_WORKER_GROUP_IN_PROCESS_GROUP_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/threads/mutex.h"
#include "base/threads/timed_mutex.h"
#include "client/collective/group.h"
#include "client/collective/record_calls.h"
#include "worker/group/bootstrap/unique_id_exchange.h"
#include "worker/group/collectives/tensor_collectives.h"
#include "worker/group/connections/connections.h"
#include "worker/group/flight_recorder/flight_recorder.h"
#include "worker/group/flight_recorder/tick_clock.h"
#include "worker/group/gpu/gpu_context.h"

namespace cohort::worker {

// Calls from several threads run one after the other. Only the caller can make their order the same
// on all ranks. The timeout of a call covers the wait for those before it. A call that times out so
// ends the generation, because it leaves its turn to the other ranks' same call.
class InProcessGroup : public client::Group {
 public:
  const std::vector<std::string>& paths() const final { return paths_; }
  const std::vector<std::string>& hosts() const final { return hosts_; }
  // Why not all ranks of this host share memory; empty if they do.
  const std::string& why_not() const { return why_not_; }
  std::vector<client::PeerStats> Stats() const final { return peers_.Read(); }
  // The last calls of this rank.
  const FlightRecorder& flight_recorder() const { return flight_recorder_; }

  absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                   const client::CallOptions& options) final;
  absl::Status Exchange(absl::Span<const client::TensorTransfer> transfers,
                        const client::CallOptions& options) final;
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers,
                                           const client::CallOptions& options) final;
  absl::Status FailCollective(const absl::Status& why, const client::CallOptions& options) final;
  absl::Status AwaitStreams(const client::CallOptions& options) final;
  absl::Status CopyAll(absl::Span<const client::TensorCopy> copies,
                       const client::CallOptions& options) final;
  absl::StatusOr<std::unique_ptr<client::Sequence>> Record(
      absl::FunctionRef<absl::Status(client::Group&)> body,
      const client::CallOptions& options) final;
  // Runs captured calls of the present generation.
  absl::Status Replay(DeviceReplay& replay, const client::CallOptions& options);
  void Abort(const absl::Status& cause) override;

 protected:
  // `timeout` is for calls without their own. `flight_memory` is that of FlightRecorder.
  explicit InProcessGroup(absl::Duration timeout, std::shared_ptr<void> flight_memory = nullptr)
      : timeout_(timeout), flight_recorder_(std::move(flight_memory)) {}

  // Begins a generation.
  absl::Status Begin(Connections connections) ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Adds tensors on `gpu`, which outlives the group; all ranks call it after Begin. Errors: those
  // of GpuContext::Form; the generation is then over.
  absl::Status BeginOnDevice(GpuContext& gpu, UniqueIdExchange& ids, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // The error of a rank without a GPU in a group that is placed on devices.
  static absl::Status NoGpu(absl::string_view group, Placement placement);
  // Allocates on the rank's GPU; `gpu` may be null. Errors: INVALID_ARGUMENT (`device` is not the
  // rank's), those of GpuContext::Allocate.
  absl::StatusOr<Tensor> AllocateOn(GpuContext* gpu, DataType type, const Shape& shape,
                                    Device device) const;
  // Waits at most one second, before this rank leaves, until the other ranks have received its
  // broadcasts and messages that are still on their way.
  void Drain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Ends the generation on this rank: calls fail until the next generation begins.
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Ends calls in flight and all later calls of the generation. Any thread may call it.
  void End(absl::string_view cause);
  // `rank` has left in order: ends the calls that need it. Any thread may call it.
  void NoteLeft(int rank, absl::string_view cause);

  // This rank's GPU; null if it has none.
  virtual GpuContext* gpu_context() const = 0;

  absl::Duration TimeoutOf(const client::CallOptions& options) const {
    return options.timeout.value_or(timeout_);
  }

  TimedMutex call_mutex_;  // held by the running call

 private:
  // Calls body(collectives, deadline) with the collectives of the memory in which `tensor` lies,
  // and records the call. If the call succeeds, `count` adds the payload that it has moved.
  template <typename Body, typename Count>
  absl::Status RunRecorded(Collective collective, const Tensor& tensor, int64_t bytes, int root,
                           const client::CallOptions& options, Body&& body, Count&& count);
  // The error of a call that timed out while another thread's call ran.
  std::string HadNoTurn(Collective collective, const client::CallOptions& options) const;
  absl::Status NoTurn(Collective collective, const client::CallOptions& options);
  absl::Status OnStream(Collective collective, const Tensor& tensor,
                        const client::CallOptions& options,
                        absl::FunctionRef<absl::Status(TensorCollectives&)> body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Null: the capture has ended.
  void SetCaptured(void* stream);
  // Captures the calls on the GPU. All ranks call it.
  absl::StatusOr<std::shared_ptr<DeviceReplay>> Capture(const client::RecordedCalls& calls,
                                                        const client::CallOptions& options);
  // The collectives of the memory in which `tensor` lies. Null: NoCollectives returns the reason.
  TensorCollectives* CollectivesFor(Collective collective, const Tensor& tensor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status NoCollectives(Collective collective, const Tensor& tensor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Completes a call that failed because of this rank's arguments, before it waited for the other
  // ranks. Tells the other ranks if they wait on the host.
  absl::Status FailOnAllRanks(Collective collective, const Tensor& tensor, absl::Status error,
                              const client::CallOptions& options, Instant deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Tells the ranks that make a call on a stream that this rank cannot. Otherwise does nothing.
  void RefuseOnStream(const absl::Status& why, const client::CallOptions& options, Instant deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // AwaitMessage with a timeout of zero. Programs poll with it, so it leaves no record.
  absl::StatusOr<MessageInfo> LookForMessage(absl::Span<const int> peers);

  const absl::Duration timeout_;
  HostLocation host_location_{
      [this](DataType type, const Shape& shape) { return Allocate(type, shape, Device::Host()); }};
  std::vector<std::string> paths_;
  std::vector<std::string> hosts_;
  std::string why_not_;
  FlightRecorder flight_recorder_;  // communicators write to it too
  client::PeerCounters peers_;      // written by the running call
  std::unique_ptr<Communicator> communicator_ ABSL_GUARDED_BY(call_mutex_);
  std::unique_ptr<TensorCollectives> collectives_ ABSL_GUARDED_BY(call_mutex_);
  bool moves_host_memory_ ABSL_GUARDED_BY(call_mutex_) = true;
  // The operation log, until BeginOnDevice passes it on.
  std::shared_ptr<const NcclOperationLog> operation_log_ ABSL_GUARDED_BY(call_mutex_);
  // This rank's GPU in the generation, if the placement includes devices; it uses `communicator_`.
  std::unique_ptr<DeviceSide> device_side_ ABSL_GUARDED_BY(call_mutex_);
  // The stream of a running capture, whose calls run only at a replay; null: no capture.
  void* captured_stream_ ABSL_GUARDED_BY(call_mutex_) = nullptr;
  int64_t generation_ ABSL_GUARDED_BY(call_mutex_) = 0;
  TickClock clock_ ABSL_GUARDED_BY(call_mutex_);

  // The communicators that Abort ends; null between generations.
  Mutex end_mutex_;
  Communicator* current_ ABSL_GUARDED_BY(end_mutex_) = nullptr;
  Communicator* current_on_device_ ABSL_GUARDED_BY(end_mutex_) = nullptr;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_IN_PROCESS_GROUP_H_
