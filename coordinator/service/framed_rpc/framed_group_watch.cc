#include "coordinator/service/framed_rpc/framed_group_watch.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

#include "absl/strings/string_view.h"
#include "base/access/peer_access.h"
#include "base/framed_rpc/server/server_connection.h"
#include "coordinator/service/engine/discard_reply.h"
#include "google/protobuf/io/zero_copy_stream_impl_lite.h"

namespace cohort::coordinator {
namespace {

// The memory of a watch, whose step may be in the engine or not.
constexpr int64_t kCost = 1 << 10;

}  // namespace

FramedGroupWatch::FramedGroupWatch(Dispatcher& dispatcher, const framed_rpc::Request& request,
                                   absl::Duration ping_timeout)
    : ServerCall(request, dispatcher.OnStarted(Method::kWatchGroup)),
      dispatcher_(dispatcher),
      ping_timeout_(ping_timeout),
      charge_(dispatcher.engine().account(), MemoryKind::kCalls, kCost) {}

FramedGroupWatch::~FramedGroupWatch() { dispatcher_.OnGone(); }

void FramedGroupWatch::Start(const framed_rpc::Request& request) {
  const absl::string_view bytes = request.message;
  PeerAccess* const access = connection().peer().access.get();
  google::protobuf::io::ArrayInputStream stream(bytes.data(), static_cast<int>(bytes.size()));
  absl::Status status = dispatcher_.Decode(Method::kWatchGroup, access, &stream, bytes.size(),
                                           request.time_left, &call_, &asker_);
  if (status.ok()) status = tenant_stream_.Begin(dispatcher_.engine(), call_.caller.key.tenant);
  dispatcher_.CountRequest(access, call_.caller, TenantRates::kFramedRequest,
                           static_cast<int64_t>(bytes.size()));
  if (!status.ok()) return Finish(status, /*by_us=*/true, nullptr);
  charge_.MoveTo(tenant_stream_.account());
  if (ping_timeout_ > absl::ZeroDuration()) {
    // The client's answer to an empty part is a sign of life.
    call_.wait = std::min(call_.wait, ping_timeout_ / 2);
    connection().CheckEvery(ping_timeout_ / 4);
  }
  if (!std::get<WatchGroupCall>(call_.body).attach) return Step();
  stream_ = dispatcher_.NewStreamNumber();
  attaching_ = true;
  attached_as_ = call_.caller.identity;
  Call call = MakeAttachCall(call_.caller, stream_, /*closed=*/false, /*by_us=*/false);
  // Receipts are acknowledged by this step alone.
  call_.caller.acknowledged.clear();
  call_.caller.abandoned.clear();
  Submit(std::move(call));
}

void FramedGroupWatch::Step() {
  Call call = call_;
  call_.caller.acknowledged.clear();
  call_.caller.abandoned.clear();
  Submit(std::move(call));
}

void FramedGroupWatch::Submit(Call call) {
  {
    MutexLock lock(&mutex_);
    state_ = State::kInEngine;
  }
  self_ = shared_from_this();
  dispatcher_.engine().Submit(std::move(call), this, &handle_);
}

void FramedGroupWatch::OnAttached(const Reply& reply, DeliveryContext& context) {
  attaching_ = false;
  if (!reply.status.ok()) {
    stream_ = 0;
    dispatcher_.LogRefusal(Method::kWatchGroup, reply.status, connection().peer().access.get());
    return Finish(EncodeStatus(reply, context.now), /*by_us=*/true, &context.batch);
  }
  const bool open = connection().Run([self = shared_from_this()] {
    bool cancelled = false;
    {
      MutexLock lock(&self->mutex_);
      cancelled = self->cancelled_;
    }
    if (!cancelled) return self->Step();
    self->Finish(absl::CancelledError("the caller went away"), self->ClosedByUs(), nullptr);
  });
  if (!open) Finish(absl::CancelledError("the caller went away"), ClosedByUs(), nullptr);
}

void FramedGroupWatch::OnReply(Reply&& reply, DeliveryContext& context) {
  const std::shared_ptr<FramedGroupWatch> last = std::move(self_);
  if (attaching_) return OnAttached(reply, context);
  // Its rights may have ended while it waited.
  absl::Status status =
      dispatcher_.Admit(Method::kWatchGroup, connection().peer().access.get(), &call_.caller);
  MessageBytes message;
  if (status.ok()) {
    status = dispatcher_.Encode(Method::kWatchGroup, reply, asker_, context, &message);
  }
  if (!status.ok()) return Finish(status, /*by_us=*/true, &context.batch);
  const auto& batch = std::get<WatchGroupReply>(reply.body);
  std::get<WatchGroupCall>(call_.body).from_revision = batch.revision;
  bool cancelled = false;
  {
    MutexLock lock(&mutex_);
    cancelled = cancelled_;
    // The reply ends the call: a cancellation that comes now does not.
    state_ = batch.closed ? State::kEnded : State::kSent;
    sent_at_ = context.now;
  }
  if (cancelled) {
    return Finish(absl::CancelledError("the caller went away"), ClosedByUs(), &context.batch);
  }
  SendPart(message.pieces(), &context.batch);
  if (batch.closed) return Finish(absl::OkStatus(), /*by_us=*/true, &context.batch);
}

absl::Status FramedGroupWatch::CheckRights() {
  return dispatcher_.AdmitAgain(Method::kWatchGroup, connection().peer().access.get(), asker_.key,
                                asker_.session);
}

bool FramedGroupWatch::ClosedByUs() { return connection().peer().closing->load(); }

bool FramedGroupWatch::Overdue() {
  // The coordinator's own sleep does not count.
  const Instant now = dispatcher_.engine().clock().Now();
  MutexLock lock(&mutex_);
  return state_ == State::kSent && ping_timeout_ > absl::ZeroDuration() &&
         now - sent_at_ >= ping_timeout_;
}

bool FramedGroupWatch::Next() {
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kSent) return false;
  }
  Step();
  return true;
}

bool FramedGroupWatch::Cancel() {
  bool in_engine = false;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kEnded) return false;
    cancelled_ = true;
    in_engine = state_ == State::kInEngine;
  }
  // Otherwise OnReply, or the step after it, ends the call.
  if (in_engine && !dispatcher_.engine().Cancel(handle_)) return false;
  const std::shared_ptr<FramedGroupWatch> last = std::move(self_);
  End(absl::CancelledError("the caller went away"), ClosedByUs());
  return true;
}

void FramedGroupWatch::End(const absl::Status& status, bool by_us) {
  {
    MutexLock lock(&mutex_);
    state_ = State::kEnded;
  }
  if (stream_ != 0) {
    Call call = MakeAttachCall(call_.caller, stream_, /*closed=*/true, by_us);
    call.caller.identity = attached_as_;
    dispatcher_.engine().Submit(std::move(call), DiscardReply::Get());
  }
  dispatcher_.OnHandled(Method::kWatchGroup, status.code(), started());
}

void FramedGroupWatch::Finish(const absl::Status& status, bool by_us,
                              framed_rpc::ReplyBatch* batch) {
  End(status, by_us);
  SendReply(status, {}, batch);
}

}  // namespace cohort::coordinator
