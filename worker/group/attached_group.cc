#include "worker/group/attached_group.h"

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status_macros.h"
#include "client/collective/attach_connection.h"
#include "client/collective/worker_session_impl.h"
#include "cohort/v1/attach.pb.h"
#include "worker/group/hand_over.h"
#include "worker/group/relayed_ids.h"

namespace cohort::worker {
namespace {

using client::AttachConnection;
using client::WorkerSession;
using client::WorkerSessionImpl;

// The daemon has met the other ranks by then, so that the hand-over waits for no rank.
constexpr absl::Duration kPatience = absl::Seconds(10);

}  // namespace

absl::StatusOr<std::unique_ptr<AttachedGroup>> AttachedGroup::Create(
    client::RemoteGroupOptions options, std::shared_ptr<DevicePlane> plane) {
  const Placement placement = options.placement;
  if (placement == Placement::kHost) {
    plane = nullptr;
  } else if (plane == nullptr) {
    return NoPlane(options.group, placement);
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
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<client::RemoteGroup> seat,
                          client::RemoteGroup::Create(std::move(options)));
  // The worker can read the record there, even while this process hangs.
  const auto record_bytes = static_cast<int64_t>(FlightRecorder::MemoryBytes());
  COHORT_ASSIGN_OR_RETURN(Tensor record, seat->Allocate(DataType::kU8, {record_bytes}));
  auto group = absl::WrapUnique(
      new AttachedGroup(std::move(seat), timeout, std::move(record), placement, std::move(plane)));
  MutexLock lock(&group->call_mutex_);
  COHORT_RETURN_IF_ERROR(group->Take(kPatience, join_timeout));
  return group;
}

AttachedGroup::AttachedGroup(std::unique_ptr<client::RemoteGroup> seat, absl::Duration timeout,
                             Tensor flight_record, Placement placement,
                             std::shared_ptr<DevicePlane> plane)
    : ExecutingGroup(timeout, std::shared_ptr<void>(flight_record.owner(), flight_record.data())),
      seat_(std::move(seat)),
      flight_record_(std::move(flight_record)),
      placement_(placement),
      plane_(std::move(plane)) {}

AttachedGroup::~AttachedGroup() {
  MutexLock lock(&call_mutex_);
  Drain();
  Disregard();
  Drop();
}

absl::Status AttachedGroup::Rejoin(absl::Duration timeout) {
  // A rank that still waits in the old generation must not wait for this rank.
  End(absl::StrCat("rank ", rank(), " goes on in the next generation"));
  MutexLock lock(&call_mutex_);
  const Instant deadline = Clock::Steady().Now() + timeout;
  Disregard();
  Drop();
  COHORT_RETURN_IF_ERROR(seat_->Rejoin(timeout));
  const absl::Duration left = deadline - Clock::Steady().Now();
  return Take(left, left);
}

absl::StatusOr<Tensor> AttachedGroup::Allocate(DataType type, const Shape& shape, Device device) {
  if (device.is_host()) return seat_->Allocate(type, shape);
  return AllocateOn(plane_.get(), type, shape, device);
}

absl::Status AttachedGroup::Take(absl::Duration timeout, absl::Duration forming_timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  const std::shared_ptr<WorkerSessionImpl> session =
      WorkerSessionImpl::Of(seat_->session()).shared_from_this();
  AttachConnection& attached = *session->attached();
  v1::AttachRequest request;
  request.mutable_hand_over_group()->set_group(seat_->number());
  request.mutable_hand_over_group()->set_flight_record(session->Find(flight_record_)->tensor);
  const auto take = [&]() -> absl::StatusOr<Connections> {
    MutexLock lock(&attached.mutex());
    COHORT_RETURN_IF_ERROR(attached.AskLocked(request, {}, deadline).status());
    return ReceiveConnections(attached.socket(), {session, &attached.segment()}, deadline);
  };
  absl::StatusOr<Connections> connections = take();
  if (!connections.ok()) {
    return absl::Status(connections.status().code(),
                        absl::StrCat(session->worker(), " handing over group ", name(), ", rank ",
                                     rank(), ": ", connections.status().message()));
  }
  COHORT_RETURN_IF_ERROR(Begin(*std::move(connections)));
  session->AwaitEnd(
      seat_->number(), generation(),
      [this, rank = rank()](const std::string& cause, bool session_ended) {
        // Other ranks get this text too, so it names the rank.
        End(session_ended ? absl::StrCat("rank ", rank, " lost its worker: ", cause) : cause);
      });
  if (placement_ == Placement::kHost) return absl::OkStatus();
  RelayedIds ids(seat_.get());
  return BeginOnDevice(*plane_, ids, forming_timeout);
}

void AttachedGroup::Disregard() {
  WorkerSessionImpl::Of(seat_->session()).AwaitEnd(seat_->number(), 0, nullptr);
}

}  // namespace cohort::worker
