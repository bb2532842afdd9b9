// The lease of a session: renewed at a third of its length (or of the progress timeout, if that is
// shorter), with the pending progress and receipts.
#include <utility>

#include "absl/random/random.h"
#include "absl/strings/str_cat.h"
#include "client/rendezvous/report/report_codec.h"
#include "client/rendezvous/session/group_session.h"

namespace cohort::client {
namespace {

// The time between two reports of this member. The coordinator takes a younger operation for one
// that makes progress.
constexpr absl::Duration kBetweenLooks = absl::Milliseconds(250);

}  // namespace

void GroupSession::ScheduleLeaseLocked() {
  absl::InsecureBitGen random;
  const absl::Duration pause = RenewalPauseLocked() * absl::Uniform(random, 0.9, 1.1);
  connection_->timers().After(pause, [weak = weak_from_this(), epoch = lease_epoch_] {
    if (auto self = weak.lock()) self->RenewLease(epoch);
  });
}

void GroupSession::RenewLease(uint64_t epoch) {
  {
    MutexLock lock(&mutex_);
    if (epoch != lease_epoch_) return;
  }
  SendKeepAlive(/*report=*/true, [weak = weak_from_this(), epoch] {
    auto self = weak.lock();
    if (self == nullptr) return;
    MutexLock lock(&self->mutex_);
    if (epoch == self->lease_epoch_) self->ScheduleLeaseLocked();
  });
}

void GroupSession::SendKeepAlive(bool report, std::function<void()> then) {
  v1::KeepAliveRequest request;
  if (report) {
    ToProto(report_tensors_ ? report_tensors_() : TensorReport(), request.mutable_tensors());
  }
  CallSpec spec;
  spec.what = "keep_alive";
  spec.in_any_state = true;  // a survivor of a broken generation keeps its membership for the next
  {
    MutexLock lock(&mutex_);
    request.set_progress(progress_);
    request.set_progress_operation(progress_operation_);
    request.mutable_scope()->set_generation(membership_.generation);
    // A renewal that takes longer than the pause to the next is not worth more retries. A coordinator
    // under load gets the margin, because a renewal that was given up does not count.
    spec.deadline = Clock::Steady().Now() + RenewalPauseLocked() + kDeadlineMargin;
  }
  const int64_t generation = request.scope().generation();
  CallAsync(method::kKeepAlive, std::move(request), spec,
            [self = shared_from_this(), generation, then = std::move(then)](
                absl::Status status, v1::KeepAliveResponse& response) {
              self->OnKeepAlive(generation, status, response);
              then();
            });
}

void GroupSession::Report() {
  {
    MutexLock lock(&mutex_);
    // A renewal that is on its way answers this request, too.
    if (!ended_.ok() || std::exchange(is_reporting_, true)) return;
  }
  const auto send = [weak = weak_from_this()] {
    auto self = weak.lock();
    if (self == nullptr) return;
    {
      MutexLock lock(&self->mutex_);
      self->is_reporting_ = false;
    }
    self->SendKeepAlive(/*report=*/true, [] {});
  };
  if (!report_tensors_) return connection_->timers().Post(send);
  // Calls it twice: the difference between the reports shows for which ranks it sleeps.
  connection_->timers().Post([weak = weak_from_this(), send] {
    auto self = weak.lock();
    if (self == nullptr) return;
    self->report_tensors_();
    self->connection_->timers().After(kBetweenLooks, send);
  });
}

void GroupSession::OnKeepAlive(int64_t generation, const absl::Status& status,
                               const v1::KeepAliveResponse& response) {
  if (absl::IsNotFound(status) || absl::IsAborted(status)) {
    Break(generation, status);
    return;
  }
  if (!status.ok()) return;
  const bool over = response.generation() > generation ||
                    response.state() == v1::GROUP_STATE_BROKEN ||
                    response.state() == v1::GROUP_STATE_CLOSED;
  if (!over) return;
  v1::ErrorDetails details = MakeErrorDetails(group_, response.generation(), "keep_alive");
  *details.mutable_cause() = response.cause();
  Break(generation, StatusWithDetails(absl::StatusCode::kAborted,
                                      absl::StrCat("group ", group_, ": generation ", generation,
                                                   " is over; ", CauseText(response.cause())),
                                      details));
}

void GroupSession::Break(int64_t generation, absl::Status cause) {
  MutexLock lock(&mutex_);
  if (generation == membership_.generation && broken_.ok()) broken_ = std::move(cause);
}

void GroupSession::FlushReceipts() {
  {
    MutexLock lock(&mutex_);
    // The end of a generation frees everything by itself.
    flush_scheduled_ = !receipts_.empty() && broken_.ok() && ended_.ok();
    if (!flush_scheduled_) return;
  }
  // At its end, those that it could not carry follow.
  SendKeepAlive(/*report=*/false, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    MutexLock lock(&self->mutex_);
    self->flush_scheduled_ = false;
    if (!self->receipts_.empty()) self->ScheduleFlushLocked();
  });
}

}  // namespace cohort::client
