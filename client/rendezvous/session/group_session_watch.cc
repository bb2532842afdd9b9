// The watch of a session: events for its owner. The coordinator also sees by it at once that this
// process died. So a broken stream is opened again without a pause the first time, and with pauses
// after that.
#include <atomic>
#include <memory>

#include "base/rpc/status_conversion.h"
#include "client/rendezvous/session/group_session.h"
#include "client/rendezvous/session/group_watch.h"

namespace cohort::client {
namespace {

// How long the watch waits for a framed connection that is being made. The default
// disconnect_grace, after which a member without a watch is lost, is twice as long.
constexpr absl::Duration kConnecting = absl::Milliseconds(250);

}  // namespace

void GroupSession::OpenWatch() {
  // Without a framed connection the watch needs one of gRPC.
  const auto open = [weak = weak_from_this(), opened = std::make_shared<std::atomic<bool>>(false)] {
    const auto self = weak.lock();
    if (self != nullptr && !opened->exchange(true)) self->StartWatch();
  };
  if (!connection_->framed_channel().WhenSettled(open)) return open();
  connection_->timers().After(kConnecting, open);
}

void GroupSession::StartWatch() {
  v1::WatchGroupRequest request;
  std::shared_ptr<GroupWatch> opened;
  std::shared_ptr<GroupWatch> replaced;
  {
    MutexLock lock(&mutex_);
    if (!ended_.ok()) return;
    v1::Scope* scope = request.mutable_scope();
    scope->set_tenant(connection_->options().tenant);
    scope->set_group(group_);
    scope->set_generation(membership_.generation);
    scope->set_session(membership_.session);
    request.set_from_revision(watched_revision_);
    request.set_attach(true);
    request.set_reports(true);
    opened = GroupWatch::Make(weak_from_this(), connection_, std::move(request));
    replaced = std::exchange(watch_, opened);
    watch_has_answered_ = false;
  }
  // The new stream first: between two streams the coordinator would take this member for gone.
  opened->Start();
  if (replaced != nullptr) replaced->Cancel();
}

void GroupSession::OnWatchAnswer(const GroupWatch* watch, const v1::WatchGroupResponse& response) {
  std::vector<GroupEvent> events;
  {
    MutexLock lock(&mutex_);
    if (watch_.get() != watch) return;
    watch_has_answered_ = true;
    watch_backoff_.Reset();
    for (const v1::GroupEvent& event : response.events()) {
      if (event.revision() <= watched_revision_) continue;
      watched_revision_ = event.revision();
      if (on_event_) events.push_back(FromProto(event));
    }
    watched_revision_ = std::max(watched_revision_, response.revision());
  }
  if (response.report()) Report();
  if (events.empty()) return;
  connection_->timers().Post([weak = weak_from_this(), events = std::move(events)] {
    auto self = weak.lock();
    if (self == nullptr) return;
    for (const GroupEvent& event : events) self->DeliverEvent(event);
  });
}

void GroupSession::DeliverEvent(const GroupEvent& event) {
  {
    MutexLock lock(&mutex_);
    if (!ended_.ok()) return;
    event_thread_ = std::this_thread::get_id();
  }
  on_event_(event);
  MutexLock lock(&mutex_);
  event_thread_ = std::thread::id();
}

void GroupSession::OnWatchDone(const GroupWatch* watch, const grpc::Status& status) {
  absl::Duration pause;
  int64_t generation = 0;
  {
    MutexLock lock(&mutex_);
    if (watch_.get() != watch || !ended_.ok()) return;
    pause = watch_has_answered_ ? absl::ZeroDuration() : watch_backoff_.Next();
    watch_has_answered_ = false;
    generation = membership_.generation;
  }
  const auto self = shared_from_this();
  const auto weak = weak_from_this();
  switch (status.error_code()) {
    case grpc::StatusCode::NOT_FOUND:
    case grpc::StatusCode::ABORTED:
      // This session has nothing to watch until it joins again.
      Break(generation, FromGrpcStatus(status));
      return;
    case grpc::StatusCode::OUT_OF_RANGE:
      // The coordinator is there and does not know the session, as after its restart.
      connection_->timers().Post([weak] {
        if (auto session = weak.lock()) session->ReadRevisionAndWatch();
      });
      return;
    default:
      connection_->timers().After(pause, [weak] {
        if (auto session = weak.lock()) session->OpenWatch();
      });
  }
}

void GroupSession::ReadRevisionAndWatch() {
  v1::GetGroupRequest request;
  CallSpec spec;
  spec.what = "get_group";
  spec.deadline = Clock::Steady().Now() + absl::Seconds(30);
  spec.read = true;
  spec.in_any_state = true;
  CallAsync(
      method::kGetGroup, std::move(request), spec,
      [self = shared_from_this()](const absl::Status& status, v1::GetGroupResponse& response) {
        if (status.ok()) {
          MutexLock lock(&self->mutex_);
          self->watched_revision_ = response.group().revision();
        }
        self->OpenWatch();
      });
}

}  // namespace cohort::client
