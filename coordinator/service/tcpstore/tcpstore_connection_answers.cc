// The answers of a connection.
#include <sys/epoll.h>
#include <sys/socket.h>

#include <iterator>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/text/logging.h"
#include "coordinator/service/tcpstore/tcpstore_connection.h"

namespace cohort::coordinator::tcpstore {
namespace {

// Answers of one delivery leave early from here on.
constexpr size_t kEagerBytes = size_t{64} << 10;

}  // namespace

void Connection::PendingAnswer::OnReply(Reply&& reply, DeliveryContext& context) {
  AnswerBytes answer;
  const absl::Status status = MakeAnswer(asked, reply, &answer);
  connection->OnAnswer(*this, status, answer, &context.batch);
}

absl::Status Connection::PendingAnswer::CheckRights() {
  GroupKey key;
  key.tenant = TenantOfPort(connection->port_);
  return connection->dispatcher_.AdmitAgain(MethodOf(asked.operation),
                                            connection->peer_.access.get(), key, Id128{});
}

Connection::PendingAnswer& Connection::AddAnswer(Operation operation) {
  const Instant started = dispatcher_.OnStarted(MethodOf(operation));
  MutexLock lock(&mutex_);
  if (spare_answers_.empty()) {
    answers_.emplace_back();
  } else {
    answers_.splice(answers_.end(), spare_answers_);
    answers_.back() = PendingAnswer();
  }
  PendingAnswer& answer = answers_.back();
  answer.connection = this;
  answer.place = std::prev(answers_.end());
  answer.started = started;
  answer.asked.operation = operation;
  if (MayBeLarge(operation)) ++large_answers_;
  if (operation == Operation::kWait) ++waits_;
  return answer;
}

void Connection::EndAnswer(PendingAnswer& answer, absl::StatusCode code) {
  dispatcher_.OnHandled(MethodOf(answer.asked.operation), code, answer.started);
  dispatcher_.OnGone();
  if (MayBeLarge(answer.asked.operation)) --large_answers_;
  if (answer.asked.operation == Operation::kWait) --waits_;
  answer.self.reset();  // not the last one: the caller has another
  if (spare_answers_.empty()) {
    spare_answers_.splice(spare_answers_.end(), answers_, answer.place);
  } else {
    answers_.erase(answer.place);
  }
}

void Connection::OnAnswer(PendingAnswer& answer, const absl::Status& status,
                          const AnswerBytes& bytes, framed_rpc::ReplyBatch* batch) {
  const std::shared_ptr<Connection> self = shared_from_this();  // outlives the lock
  const Operation operation = answer.asked.operation;
  {
    MutexLock lock(&mutex_);
    const bool cancelled = answer.cancelled;
    if (!status.ok() && answer.barrier.round != 0) {
      answer.barrier.refused->store(true);
      lost_barriers_.push_back(answer.barrier);
    }
    EndAnswer(answer, status.code());
    if (closed_ || broken_) return;
    if (status.ok()) {
      AppendLocked(bytes);
      if (cancelled) output_.Append(absl::string_view(&kWaitCancelled, 1));
    } else {
      Break();
    }
    SendLocked(batch);
  }
  if (status.ok() || absl::IsUnavailable(status) || absl::IsCancelled(status)) return;
  Complain(
      absl::Status(status.code(), absl::StrCat(OperationName(operation), " of TCPStore client ",
                                               client_, ": ", status.message())));
}

void Connection::AppendLocked(const AnswerBytes& answer) {
  absl::string_view bytes = answer.bytes;
  size_t done = 0;
  for (const AnswerBytes::Value& value : answer.values) {
    output_.Append(bytes.substr(done, value.at - done));
    done = value.at;
    const auto payload = std::make_shared<const Payload>(value.payload);
    output_.AppendShared({payload, payload->bytes()});
  }
  output_.Append(bytes.substr(done));
}

void Connection::SendLocked(framed_rpc::ReplyBatch* batch) {
  if (paused_ && !Backlogged()) {
    paused_ = false;
    loop_.Post([self = shared_from_this()] { self->OnEvents(0); });
  }
  if (handling_ || (corked_ && output_.size() < kEagerBytes)) return;
  if (batch != nullptr && !corked_) {
    corked_ = true;
    batch->Add(shared_from_this());
    return;
  }
  FlushLocked();
}

void Connection::Flush() {
  MutexLock lock(&mutex_);
  corked_ = false;
  FlushLocked();
}

void Connection::FlushLocked() {
  if (closed_ || broken_) return;
  if (!blocked_ && output_.size() > 0) {
    switch (output_.Flush(socket_)) {
      case framed_rpc::SendQueue::Flushed::kAll:
        break;
      case framed_rpc::SendQueue::Flushed::kPartly:
        blocked_ = true;
        break;
      case framed_rpc::SendQueue::Flushed::kBroken:
        Break();
        break;
    }
  }
  if (!broken_ && !ChargeUnread()) Break();
  UpdateEvents();
}

bool Connection::ChargeUnread() {
  const auto bytes = static_cast<int64_t>(blocked_ ? output_.own_size() : 0);
  if (bytes == unread_bytes_) return true;
  const absl::Status charged = unread_charge_.Set(bytes);
  if (!charged.ok()) {
    Log(LogLevel::kWarning, "connection closed: its client does not read its answers",
        {{"client", client_}, {"unread_bytes", bytes}, {"why", charged.message()}});
    return false;
  }
  unread_bytes_ = bytes;
  return true;
}

void Connection::Break() {
  broken_ = true;
  shutdown(fd_, SHUT_RDWR);  // the loop hears of it and closes
}

void Connection::UpdateEvents() {
  uint32_t events = 0;
  if (!paused_ || broken_) events |= EPOLLIN;
  if (blocked_ && !broken_) events |= EPOLLOUT;
  // If it has nothing but waits, the pause may last as long as they do.
  if (paused_ && answers_.size() >= kMaxCalls && waits_ == answers_.size()) events |= EPOLLRDHUP;
  if (events == events_) return;
  events_ = events;
  loop_.Modify(fd_, events);
}

}  // namespace cohort::coordinator::tcpstore
