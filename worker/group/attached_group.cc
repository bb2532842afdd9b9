#include "worker/group/attached_group.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/rpc/rank_tls.h"
#include "base/status_macros.h"
#include "base/threads/mutex.h"
#include "base/threads/timed_mutex.h"
#include "client/collective/remote/attach_connection.h"
#include "client/collective/remote/worker_session_impl.h"
#include "cohort/v1/attach.pb.h"
#include "worker/group/bootstrap/worker_relayed_unique_ids.h"
#include "worker/group/connections/secure_connections.h"
#include "worker/group/connections/transfer_connections.h"

namespace cohort::worker {
namespace {

using client::AttachConnection;
using client::WorkerSession;
using client::WorkerSessionImpl;

// The daemon has connected to the other ranks by then, so sending the connections waits for no
// rank.
constexpr absl::Duration kTimeout = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<AttachedGroup>> AttachedGroup::Create(
    client::RemoteGroupOptions options, std::shared_ptr<GpuContext> gpu) {
  const Placement placement = options.placement;
  if (placement == Placement::kHost) {
    gpu = nullptr;
  } else if (gpu == nullptr) {
    return NoGpu(options.group, placement);
  }
  if (options.session == nullptr) {
    COHORT_ASSIGN_OR_RETURN(options.session, WorkerSession::Connect(options.worker));
  }
  const WorkerSessionImpl& session = WorkerSessionImpl::Of(*options.session);
  if (session.attached() == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(
        session.worker(), " shares no memory with ", "this process: ", session.why_not_attached()));
  }
  const absl::Duration timeout = options.timeout;
  const absl::Duration join_timeout = options.join_timeout;
  options.attached = true;
  COHORT_ASSIGN_OR_RETURN(const RankTls tls, RankTlsOfEnvironment());
  options.rank_tls = static_cast<int>(tls.state);
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<client::RemoteGroup> membership,
                          client::RemoteGroup::Create(std::move(options)));
  // The worker can read the record there, even while this process hangs.
  const auto record_bytes = static_cast<int64_t>(FlightRecorder::MemoryBytes());
  COHORT_ASSIGN_OR_RETURN(Tensor record, membership->Allocate(DataType::kU8, {record_bytes}));
  auto group = absl::WrapUnique(new AttachedGroup(std::move(membership), timeout, std::move(record),
                                                  placement, std::move(gpu), tls.files));
  const TimedMutexLock lock(&group->call_mutex_);
  COHORT_RETURN_IF_ERROR(group->Take(kTimeout, join_timeout));
  return group;
}

AttachedGroup::AttachedGroup(std::unique_ptr<client::RemoteGroup> membership,
                             absl::Duration timeout, Tensor flight_record, Placement placement,
                             std::shared_ptr<GpuContext> gpu, TlsFiles tls_files)
    : InProcessGroup(timeout, std::shared_ptr<void>(flight_record.owner(), flight_record.data())),
      membership_(std::move(membership)),
      flight_record_(std::move(flight_record)),
      placement_(placement),
      gpu_(std::move(gpu)),
      tls_files_(std::move(tls_files)) {}

AttachedGroup::~AttachedGroup() {
  const TimedMutexLock lock(&call_mutex_);
  Drain();
  StopWatching();
  Drop();
}

absl::Status AttachedGroup::Rejoin(absl::Duration timeout) {
  // A rank that still waits in the old generation must not wait for this rank.
  End(absl::StrCat("rank ", rank(), " goes on in the next generation"));
  const TimedMutexLock lock(&call_mutex_);
  const Instant deadline = Clock::Steady().Now() + timeout;
  StopWatching();
  Drop();
  COHORT_RETURN_IF_ERROR(membership_->Rejoin(timeout));
  const absl::Duration left = deadline - Clock::Steady().Now();
  return Take(left, left);
}

void AttachedGroup::Abort(const absl::Status& cause) {
  InProcessGroup::Abort(cause);
  // Ranks that are in no call, or that wait at the coordinator, learn it from the worker.
  membership_->Abort(cause);
}

absl::StatusOr<Tensor> AttachedGroup::Allocate(DataType type, const Shape& shape, Device device) {
  if (device.is_host()) return membership_->Allocate(type, shape);
  return AllocateOn(gpu_.get(), type, shape, device);
}

absl::Status AttachedGroup::Take(absl::Duration timeout, absl::Duration forming_timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  const std::shared_ptr<WorkerSessionImpl> session =
      WorkerSessionImpl::Of(membership_->session()).shared_from_this();
  AttachConnection& attached = *session->attached();
  v1::AttachRequest request;
  request.mutable_send_connections()->set_group(membership_->number());
  request.mutable_send_connections()->set_flight_record(session->Find(flight_record_)->tensor);
  const auto take = [&]() -> absl::StatusOr<Connections> {
    MutexLock lock(&attached.mutex());
    COHORT_RETURN_IF_ERROR(attached.AskLocked(request, {}, deadline).status());
    return ReceiveConnections(attached.socket(), {session, &attached.segment()}, deadline);
  };
  absl::StatusOr<Connections> connections = take();
  if (!connections.ok()) {
    return absl::Status(
        connections.status().code(),
        absl::StrCat(session->worker(), " sending the connections of group ", name(), ", rank ",
                     rank(), ": ", connections.status().message()));
  }
  // The clients of the other ranks may take their connections later.
  COHORT_RETURN_IF_ERROR(
      SecureConnections(*connections, tls_files_, Clock::Steady().Now() + forming_timeout));
  COHORT_RETURN_IF_ERROR(Begin(*std::move(connections)));
  WorkerSessionImpl::GroupCallbacks callbacks;
  callbacks.on_end = [this, rank = rank()](const std::string& cause, bool session_ended) {
    // Other ranks get this text too, so it names the rank.
    End(session_ended ? absl::StrCat("rank ", rank, " lost its worker: ", cause) : cause);
  };
  callbacks.on_left = [this](int rank, const std::string& cause) { NoteLeft(rank, cause); };
  session->Watch(membership_->number(), generation(), std::move(callbacks));
  if (placement_ == Placement::kHost) return absl::OkStatus();
  WorkerRelayedUniqueIds ids(membership_.get());
  return BeginOnDevice(*gpu_, ids, forming_timeout);
}

void AttachedGroup::StopWatching() {
  WorkerSessionImpl::Of(membership_->session()).Unwatch(membership_->number());
}

}  // namespace cohort::worker
