#include "client/collective/remote/remote_group.h"

#include <algorithm>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/tensor/host_tensor.h"
#include "base/tensor/tensor.h"
#include "client/collective/remote/call_tensors.h"
#include "client/collective/remote/framed_collective_client.h"
#include "client/collective/remote/worker_session_impl.h"
#include "cohort/v1/worker.grpc.pb.h"

namespace cohort::client {
namespace {

using Stub = v1::WorkerService::Stub;

constexpr absl::Duration kShortTimeout = absl::Seconds(5);
// The longest duration that a daemon accepts.
constexpr absl::Duration kLongestDuration = absl::Hours(24);

void SetDuration(absl::Duration duration, google::protobuf::Duration* to) {
  const absl::Duration bounded =
      std::min(std::max(duration, absl::ZeroDuration()), kLongestDuration);
  const int64_t nanoseconds = absl::ToInt64Nanoseconds(bounded);
  to->set_seconds(nanoseconds / 1000000000);
  to->set_nanos(static_cast<int32_t>(nanoseconds % 1000000000));
}

}  // namespace

RemoteGroup::RemoteGroup(RemoteGroupOptions options) : options_(std::move(options)) {}

WorkerSessionImpl& RemoteGroup::wire() const { return WorkerSessionImpl::Of(session()); }

absl::StatusOr<std::unique_ptr<RemoteGroup>> RemoteGroup::Create(RemoteGroupOptions options) {
  if (options.data_expiration.has_value() && (*options.data_expiration <= absl::ZeroDuration() ||
                                              *options.data_expiration > kLongestDuration)) {
    return absl::InvalidArgumentError(
        absl::StrCat("group ", options.group, ": the data expiration is ",
                     absl::FormatDuration(*options.data_expiration),
                     "; it must be above 0 and at most ", absl::FormatDuration(kLongestDuration)));
  }
  if (options.placement != Placement::kHost && !options.attached) {
    return NoGpus(
        absl::StrCat("group ", options.group, " has placement ", NameOf(options.placement)));
  }
  if (options.session == nullptr) {
    COHORT_ASSIGN_OR_RETURN(options.session, WorkerSession::Connect(options.worker));
  }
  auto group = absl::WrapUnique(new RemoteGroup(std::move(options)));
  group->framed_client_ = group->wire().MakeFramedClient();
  const RemoteGroupOptions& wanted = group->options_;
  v1::JoinGroupRequest request;
  request.set_coordinator(wanted.coordinator);
  request.set_tenant(wanted.tenant);
  request.set_group(wanted.group);
  if (wanted.rank.has_value()) request.set_rank(*wanted.rank);
  request.set_world_size(wanted.world_size);
  request.set_min_world_size(wanted.min_world_size);
  request.set_member(wanted.member);
  request.set_parameters_digest(wanted.parameters_digest);
  request.set_attached(wanted.attached);
  request.set_rank_tls(wanted.rank_tls);
  if (wanted.lease.has_value()) SetDuration(*wanted.lease, request.mutable_lease());
  if (wanted.data_expiration.has_value()) {
    SetDuration(*wanted.data_expiration, request.mutable_data_expiration());
  }
  SetDuration(wanted.join_timeout, request.mutable_timeout());
  request.set_placement(static_cast<int>(wanted.placement));
  v1::JoinGroupResponse response;
  bool answered = false;
  // The group forms after joining has ended, and each of the two has the whole timeout.
  const absl::Status joined =
      group->wire().Call(&Stub::JoinGroup, request, 2 * wanted.join_timeout, &response, &answered);
  COHORT_RETURN_IF_ERROR(group->Explain(joined, answered));
  group->Adopt(response);
  return group;
}

RemoteGroup::~RemoteGroup() {
  if (group_ == 0 || !wire().Standing(0, 0).ok()) return;
  v1::LeaveGroupRequest request;
  request.set_group(group_);
  v1::LeaveGroupResponse response;
  wire().Notify(&Stub::LeaveGroup, request, &response);
}

absl::Status RemoteGroup::Rejoin(absl::Duration timeout) {
  COHORT_RETURN_IF_ERROR(Explain(wire().Standing(0, 0), false));
  v1::RejoinGroupRequest request;
  request.set_group(group_);
  SetDuration(timeout, request.mutable_timeout());
  v1::JoinGroupResponse response;
  bool answered = false;
  const absl::Status joined =
      wire().Call(&Stub::RejoinGroup, request, timeout, &response, &answered);
  COHORT_RETURN_IF_ERROR(Explain(joined, answered));
  Adopt(response);
  return absl::OkStatus();
}

void RemoteGroup::Adopt(const v1::JoinGroupResponse& joined) {
  group_ = joined.group();
  generation_ = joined.generation();
  rank_ = joined.rank();
  world_size_ = joined.world_size();
  paths_.assign(joined.paths().begin(), joined.paths().end());
  hosts_.assign(joined.machines().begin(), joined.machines().end());
  why_not_ = joined.why_not();
  {
    MutexLock lock(&inboxes_mutex_);
    inboxes_.clear();
  }
  MutexLock lock(&count_mutex_);
  peers_.Reset(rank_, world_size_);
}

absl::Duration RemoteGroup::TimeoutOf(const CallOptions& options) const {
  return options.timeout.value_or(options_.timeout);
}

absl::Status RemoteGroup::Standing() const {
  const absl::Status session = wire().Standing(0, 0);
  if (!session.ok()) return Explain(session, false);
  return wire().Standing(group_, generation_);
}

absl::Status RemoteGroup::Explain(const absl::Status& status, bool answered) const {
  if (status.ok() || answered) return status;
  return absl::Status(status.code(), absl::StrCat(status.message(), "; group ", options_.group,
                                                  world_size_ > 0 ? absl::StrCat(", rank ", rank_)
                                                                  : std::string()));
}

absl::StatusOr<Tensor> RemoteGroup::Allocate(DataType type, const Shape& shape, Device device) {
  if (!device.is_host()) {
    return Explain(NoGpus(absl::StrCat("allocate on ", device.ToString())), false);
  }
  if (wire().attached() != nullptr) return wire().CreateTensor(type, shape);
  return NewHostTensor(type, shape);
}

CallTensors RemoteGroup::TensorsOf(const CallOptions& options) const {
  return CallTensors(wire(), Clock::Steady().Now() + TimeoutOf(options));
}

absl::Status RemoteGroup::RunRequest(v1::RunCollectiveRequest& request, CallTensors& tensors,
                                     const CallOptions& options,
                                     v1::RunCollectiveResponse* response) {
  if (options.stream.has_value()) return Explain(NoGpus("a call on a stream"), false);
  request.set_group(group_);
  const absl::Duration timeout = TimeoutOf(options);
  SetDuration(timeout, request.mutable_timeout());
  bool answered = false;
  const absl::Status status =
      wire().RunCollective(*framed_client_, request, timeout, response, &answered);
  if (!status.ok()) tensors.Fail(answered);
  return Explain(status, answered);
}

absl::Status RemoteGroup::CopyAll(absl::Span<const TensorCopy> copies, const CallOptions& options) {
  if (options.stream.has_value()) return Explain(NoGpus("a copy on a stream"), false);
  for (const TensorCopy& copy : copies) {
    COHORT_RETURN_IF_ERROR(Explain(CheckInHostMemory(copy.from), false));
    COHORT_RETURN_IF_ERROR(Explain(CheckInHostMemory(copy.to), false));
  }
  for (const TensorCopy& copy : copies) COHORT_RETURN_IF_ERROR(CopyTensor(copy.from, copy.to));
  return absl::OkStatus();
}

v1::RunObjectRequest RemoteGroup::ObjectRequest(v1::ObjectOperation operation,
                                                absl::string_view object, int peer) const {
  v1::RunObjectRequest request;
  request.set_group(group_);
  request.set_operation(operation);
  request.set_object(std::string(object));
  request.set_peer(peer);
  return request;
}

absl::StatusOr<std::vector<std::string>> RemoteGroup::RunObject(v1::RunObjectRequest& request,
                                                                const CallOptions& options) {
  COHORT_RETURN_IF_ERROR(Standing());
  const absl::Duration timeout = TimeoutOf(options);
  SetDuration(timeout, request.mutable_timeout());
  v1::RunObjectResponse response;
  bool answered = false;
  // The worker's own call to the coordinator has a margin, too.
  const absl::Status status =
      wire().Call(&Stub::RunObject, request, timeout + kShortTimeout, &response, &answered);
  COHORT_RETURN_IF_ERROR(Explain(status, answered));
  return std::vector<std::string>(std::make_move_iterator(response.mutable_objects()->begin()),
                                  std::make_move_iterator(response.mutable_objects()->end()));
}

absl::StatusOr<std::vector<std::string>> RemoteGroup::TakeNext(int source,
                                                               v1::RunObjectRequest& request,
                                                               const CallOptions& options) {
  std::shared_ptr<Inbox> inbox;
  {
    MutexLock lock(&inboxes_mutex_);
    std::shared_ptr<Inbox>& found = inboxes_[source];
    if (found == nullptr) found = std::make_shared<Inbox>();
    inbox = found;
  }
  if (!inbox->mutex.LockFor(TimeoutOf(options))) {
    return absl::DeadlineExceededError(absl::StrCat(
        "group ", name(), ": ",
        source == kRounds ? "objects of all ranks" : absl::StrCat("an object from rank ", source),
        ": another call that waits for them is not over"));
  }
  const TimedMutexLock lock(&inbox->mutex, std::adopt_lock);
  request.set_taken(inbox->taken);
  absl::StatusOr<std::vector<std::string>> answer = RunObject(request, options);
  if (answer.ok()) ++inbox->taken;
  return answer;
}

absl::StatusOr<std::string> RemoteGroup::OneObject(
    absl::StatusOr<std::vector<std::string>> objects) const {
  COHORT_RETURN_IF_ERROR(objects.status());
  if (objects->size() != 1) {
    return absl::InternalError(absl::StrCat(session().worker(), " sent no object"));
  }
  return std::move((*objects)[0]);
}

absl::Status RemoteGroup::SendObject(absl::string_view object, int destination,
                                     const CallOptions& options) {
  v1::RunObjectRequest request = ObjectRequest(v1::OBJECT_OPERATION_SEND, object, destination);
  return RunObject(request, options).status();
}

absl::StatusOr<std::string> RemoteGroup::ReceiveObject(int source, const CallOptions& options) {
  v1::RunObjectRequest request = ObjectRequest(v1::OBJECT_OPERATION_RECEIVE, "", source);
  return OneObject(TakeNext(source, request, options));
}

absl::StatusOr<std::string> RemoteGroup::BroadcastObject(absl::string_view object, int root,
                                                         const CallOptions& options) {
  v1::RunObjectRequest request = ObjectRequest(v1::OBJECT_OPERATION_BROADCAST, object, root);
  return OneObject(TakeNext(kRounds, request, options));
}

absl::StatusOr<std::vector<std::string>> RemoteGroup::AllGatherObjects(absl::string_view object,
                                                                       const CallOptions& options) {
  v1::RunObjectRequest request = ObjectRequest(v1::OBJECT_OPERATION_ALL_GATHER, object, 0);
  return TakeNext(kRounds, request, options);
}

absl::StatusOr<std::vector<std::string>> RemoteGroup::AllGatherObjectsOf(
    absl::Span<const int> members, absl::string_view object, const CallOptions& options) {
  if (members.empty()) return absl::InvalidArgumentError("objects of members: there is no member");
  v1::RunObjectRequest request = ObjectRequest(v1::OBJECT_OPERATION_ALL_GATHER, object, 0);
  request.mutable_members()->Add(members.begin(), members.end());
  return RunObject(request, options);
}

void RemoteGroup::Abort(const absl::Status& cause) {
  constexpr size_t kMostSaid = 1024;  // the worker cuts longer ones
  v1::AbortGroupRequest request;
  request.set_group(group_);
  request.set_cause(std::string(cause.message().substr(0, kMostSaid)));
  v1::AbortGroupResponse response;
  wire().Notify(&Stub::AbortGroup, request, &response);
}

}  // namespace cohort::client
