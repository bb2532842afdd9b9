// What those forms of Group have in common whose calls the calling thread executes.
#ifndef COHORT_WORKER_GROUP_EXECUTING_GROUP_H_
#define COHORT_WORKER_GROUP_EXECUTING_GROUP_H_

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
#include "base/mutex.h"
#include "client/collective/group.h"
#include "worker/group/connections.h"
#include "worker/group/device_plane.h"
#include "worker/group/flight_recorder.h"
#include "worker/group/id_exchange.h"
#include "worker/group/recorded_sequence.h"
#include "worker/group/tensor_verbs.h"
#include "worker/group/tick_clock.h"

namespace cohort::worker {

// Calls of several threads take turns, in an order that only the caller can make the same on all
// ranks.
class ExecutingGroup : public client::Group {
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
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers,
                                   const client::CallOptions& options) final;
  absl::Status Refuse(const absl::Status& why, const client::CallOptions& options) final;
  absl::Status AwaitStreams(const client::CallOptions& options) final;
  absl::Status CopyAll(absl::Span<const client::TensorCopy> copies,
                       const client::CallOptions& options) final;
  absl::StatusOr<std::unique_ptr<client::Sequence>> Record(
      absl::FunctionRef<absl::Status(client::Group&)> body,
      const client::CallOptions& options) final;
  // What was captured, of the generation that it was recorded in.
  absl::Status Replay(DeviceReplay& replay, const client::CallOptions& options);
  void Abort(const absl::Status& cause) override;

 protected:
  // `timeout` is of calls without their own. `flight_memory` as FlightRecorder's.
  explicit ExecutingGroup(absl::Duration timeout, std::shared_ptr<void> flight_memory = nullptr)
      : timeout_(timeout), flight_recorder_(std::move(flight_memory)) {}

  // A generation begins; while `call_mutex_` is held.
  absl::Status Begin(Connections connections) ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // And for tensors on `plane`, which outlives it, too. All ranks call it, behind
  // Begin. Errors: those of DevicePlane::Form; then all of the generation is over.
  absl::Status BeginOnDevice(DevicePlane& plane, IdExchange& ids, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Of a rank that has no GPU, and is to have tensors there.
  static absl::Status NoPlane(absl::string_view group, Placement placement);
  // On the rank's GPU; `plane` may be null. Errors: INVALID_ARGUMENT (`device` is another), those
  // of DevicePlane::Allocate.
  absl::StatusOr<Tensor> AllocateOn(DevicePlane* plane, DataType type, const Shape& shape,
                                    Device device) const;
  // Before this rank leaves: what it broadcast or sent, and did not wait for, arrives, if the
  // others come for it within a second.
  void Drain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // It is over: calls are refused until the next.
  void Drop() ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Ends what is in flight, and all of the generation. From any thread.
  void End(absl::string_view cause);

  // This rank's GPU; null: none.
  virtual DevicePlane* plane() const = 0;

  absl::Duration TimeoutOf(const client::CallOptions& options) const {
    return options.timeout.value_or(timeout_);
  }

  Mutex call_mutex_;  // held by the call at work

 private:
  // Calls body(verbs, deadline) with the verbs of where `tensor` lies, and keeps a record of it.
  // `count` adds what a call that went well has moved.
  template <typename Body, typename Count>
  absl::Status RunRecorded(Collective verb, const Tensor& tensor, int64_t bytes, int root,
                           const client::CallOptions& options, Body&& body, Count&& count);
  absl::Status OnStream(Collective verb, const Tensor& tensor, const client::CallOptions& options,
                        absl::FunctionRef<absl::Status(TensorVerbs&)> body)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // Null: the capture has ended.
  void SetCaptured(void* stream);
  // Those on the GPU. All ranks call it.
  absl::Status Capture(std::vector<RecordedStep>& steps, const client::CallOptions& options);
  // Those of where `tensor` lies; null: NoVerbs says why there are none.
  TensorVerbs* VerbsFor(Collective verb, const Tensor& tensor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  absl::Status NoVerbs(Collective verb, const Tensor& tensor)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // A call that failed by this rank's own mistake, before it met the others, who are told where
  // they can be.
  absl::Status TellRefusal(Collective verb, const Tensor& tensor, absl::Status refusal,
                           const client::CallOptions& options, Instant deadline)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(call_mutex_);
  // AwaitMessage without time, of which there are many: no record of it is kept.
  absl::StatusOr<int> LookForMessage(absl::Span<const int> peers);

  const absl::Duration timeout_;
  HostPlace host_place_{
      [this](DataType type, const Shape& shape) { return Allocate(type, shape, Device::Host()); }};
  std::vector<std::string> paths_;
  std::vector<std::string> hosts_;
  std::string why_not_;
  FlightRecorder flight_recorder_;  // communicators write to it
  client::PeerCounters peers_;      // the call at work counts
  std::unique_ptr<Communicator> communicator_ ABSL_GUARDED_BY(call_mutex_);
  std::unique_ptr<TensorVerbs> verbs_ ABSL_GUARDED_BY(call_mutex_);
  bool moves_host_memory_ ABSL_GUARDED_BY(call_mutex_) = true;
  // Of the GPUs, until they use it.
  std::shared_ptr<const NcclBoard> board_ ABSL_GUARDED_BY(call_mutex_);
  // On the GPU, where the group has tensors there; it lives on `communicator_`.
  std::unique_ptr<DeviceSide> device_side_ ABSL_GUARDED_BY(call_mutex_);
  // Of a capture at work, whose calls are done by nobody yet; null: there is none.
  void* captured_stream_ ABSL_GUARDED_BY(call_mutex_) = nullptr;
  int64_t generation_ ABSL_GUARDED_BY(call_mutex_) = 0;
  TickClock clock_ ABSL_GUARDED_BY(call_mutex_);

  // What may be told to end; null while there is none.
  Mutex end_mutex_;
  Communicator* current_ ABSL_GUARDED_BY(end_mutex_) = nullptr;
  Communicator* current_on_device_ ABSL_GUARDED_BY(end_mutex_) = nullptr;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_EXECUTING_GROUP_H_
