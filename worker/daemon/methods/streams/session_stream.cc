#include "worker/daemon/methods/streams/session_stream.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rpc/status_conversion.h"

namespace cohort::worker {

SessionStream::SessionStream(SessionTable& sessions, std::shared_ptr<Session> session,
                             const v1::SessionEvent& opened)
    : sessions_(sessions), session_(std::move(session)) {
  OnEvent(opened);
  session_->SetListener(this);
}

SessionStream::SessionStream(SessionTable& sessions, const absl::Status& error)
    : sessions_(sessions) {
  Close(error);
}

void SessionStream::OnEvent(const v1::SessionEvent& event) {
  MutexLock lock(&mutex_);
  if (closing_) return;
  if (events_.size() >= kMaxUnread) {
    CloseLocked(absl::ResourceExhaustedError(
        absl::StrCat("the client has not read ", kMaxUnread, " events")));
    return;
  }
  events_.push_back(event);
  if (events_.size() == 1) StartWrite(&events_.front());
}

void SessionStream::OnEnded(absl::string_view cause) { Close(absl::UnavailableError(cause)); }

void SessionStream::Close(const absl::Status& status) {
  MutexLock lock(&mutex_);
  CloseLocked(status);
}

void SessionStream::CloseLocked(const absl::Status& status) {
  if (closing_) return;
  closing_ = true;
  last_ = status;
  // A write in progress ends first; OnWriteDone then finishes the call.
  if (events_.empty()) Finish(ToGrpcStatus(last_));
}

void SessionStream::OnWriteDone(bool ok) {
  MutexLock lock(&mutex_);
  events_.pop_front();
  if (!ok && !closing_) {
    closing_ = true;
    last_ = absl::CancelledError("the client is gone");
  }
  if (closing_) {
    events_.clear();
    Finish(ToGrpcStatus(last_));
  } else if (!events_.empty()) {
    StartWrite(&events_.front());
  }
}

void SessionStream::OnCancel() {
  if (session_ != nullptr) {
    sessions_.End(session_, absl::StrCat("its client (", session_->Describe(), ") is gone"));
  }
  Close(absl::CancelledError("the client is gone"));
}

void SessionStream::OnDone() {
  if (session_ != nullptr) {
    // Once this has returned, no event comes any more.
    session_->SetListener(nullptr);
    sessions_.End(session_, absl::StrCat("its client (", session_->Describe(), ") is gone"));
  }
  delete this;
}

}  // namespace cohort::worker
