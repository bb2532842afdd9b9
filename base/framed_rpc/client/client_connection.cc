// A connection at work; client_connection_connect.cc connects it. One file, though long: the calls,
// the answers and the end of a connection share one lock.
#include "base/framed_rpc/client/client_connection.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/framed_rpc/client/client_event_loop.h"
#include "base/threads/wait_hook.h"

namespace cohort::framed_rpc {
namespace {

constexpr size_t kReadBytes = size_t{16} << 10;
constexpr size_t kMaxReadBytes = size_t{1} << 20;
// To sleep and be woken takes longer than the server needs for most calls. So in a row of calls
// that are answered quickly, a caller looks for its answer for so long before it sleeps, and offers
// the processor to others between two looks.
constexpr absl::Duration kLooking = absl::Microseconds(30);
constexpr absl::Duration kQuickAnswer = absl::Microseconds(60);
// With TLS, a call whose two sides both slept takes about 90. Without this, no call after it looks.
constexpr absl::Duration kQuickAnswerByTls = absl::Microseconds(120);
constexpr absl::Duration kInARow = absl::Microseconds(100);
// With a stream open, the loop begins to read so long after the last of a row of blocking calls.
// Otherwise each of these calls would cost two calls of epoll_ctl.
constexpr absl::Duration kBeforeListening = absl::Milliseconds(1);

grpc::Status Unavailable(absl::string_view why) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, std::string(why));
}

}  // namespace

ClientConnection::ClientConnection(std::vector<SocketAddress> addresses,
                                   const ChannelOptions& options, std::function<void()> on_ready,
                                   OnEnd on_end)
    : addresses_(std::move(addresses)),
      options_(options),
      connect_until_(Clock::Steady().Now() + options.connect_timeout),
      on_ready_(std::move(on_ready)),
      on_end_(std::move(on_end)),
      wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      input_(options.max_message_bytes) {}

ClientConnection::~ClientConnection() {
  if (fd_ >= 0) close(fd_);
  if (wake_fd_ >= 0) close(wake_fd_);
}

int ClientConnection::Number(absl::string_view path) const {
  const auto it = numbers_->find(path);
  return it == numbers_->end() ? -1 : it->second;
}

void ClientConnection::OnEvents(uint32_t events) {
  State state;
  {
    MutexLock lock(&mutex_);
    state = state_;
  }
  switch (state) {
    case State::kEnded:
      return;
    case State::kConnecting:
      return OnConnected();
    case State::kHandshake:
      return OnHandshake();
    case State::kGreeting: {
      if ((events & EPOLLOUT) != 0) {
        MutexLock lock(&mutex_);
        blocked_ = false;
        Write("");
      }
      if (!ReadGreeting()) return;
      {
        MutexLock lock(&mutex_);
        state_ = State::kReady;
        UpdateEvents(true);
      }
      const std::function<void()> on_ready = std::exchange(on_ready_, nullptr);
      if (on_ready != nullptr) on_ready();
      return;
    }
    case State::kReady:
      break;
  }
  {
    MutexLock lock(&mutex_);
    if ((events & EPOLLOUT) != 0) {
      blocked_ = false;
      Write("");
    }
    if ((events & ~static_cast<uint32_t>(EPOLLOUT)) == 0 || reading_) return;
    reading_ = true;
  }
  const bool open = ReadOnce();
  {
    MutexLock lock(&mutex_);
    reading_ = false;
    PassOn();
  }
  if (!open) Finish(End::kBroken, "the connection broke");
}

uint32_t ClientConnection::Add(uint16_t method, Pending pending, absl::Duration timeout,
                               std::string& frame) {
  do {
    ++last_id_;
  } while (calls_.contains(last_id_));
  if (pending.waiter != nullptr) ++(pending.streams ? streams_ : started_);
  calls_.emplace(last_id_, std::move(pending));
  Header header;
  header.body_bytes = static_cast<uint32_t>(frame.size() - kHeaderBytes);
  header.call = last_id_;
  header.kind = Kind::kCall;
  header.method = method;
  header.extra = static_cast<uint32_t>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 0, kNoTimeout - 1));
  WriteHeader(header, &frame[0]);
  return last_id_;
}

void ClientConnection::Write(absl::string_view bytes) {
  if (state_ == State::kEnded) return;
  // Most of the time no bytes wait, and the socket takes all of them.
  if (!blocked_ && output_.size() == 0 && !bytes.empty()) {
    const ssize_t sent = stream().Send(bytes);
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
  }
  output_.Append(bytes);
  if (!blocked_ && output_.size() > 0) {
    const SendQueue::Flushed flushed = output_.Flush(stream());
    blocked_ = flushed == SendQueue::Flushed::kPartly;
    // The socket tells the thread that reads.
    if (flushed == SendQueue::Flushed::kBroken) shutdown(fd_, SHUT_RDWR);
  }
  UpdateEvents(want_input_);
}

void ClientConnection::UpdateEvents(bool want_input) {
  want_input_ = want_input;
  uint32_t events = EPOLLRDHUP;
  if (want_input) events |= EPOLLIN;
  if (blocked_) events |= EPOLLOUT;
  if (events == events_) return;
  events_ = events;
  ClientEventLoop().Modify(fd_, events);
}

bool ClientConnection::Start(uint16_t method, std::string frame, absl::Duration timeout,
                             std::shared_ptr<Waiter> waiter, uint32_t* id) {
  Pending pending;
  pending.waiter = std::move(waiter);
  pending.deadline = Clock::Steady().Now() + timeout;
  MutexLock lock(&mutex_);
  if (state_ != State::kReady || closing_) return false;
  SendNewToken();
  *id = Add(method, std::move(pending), timeout, frame);
  Write(frame);
  if (!want_input_ && !reading_) UpdateEvents(true);
  ClientEventLoop().SetTicking(true);
  return true;
}

bool ClientConnection::StartStream(uint16_t method, std::string frame,
                                   std::shared_ptr<Waiter> waiter, uint32_t* id) {
  Pending pending;
  pending.waiter = std::move(waiter);
  pending.streams = true;
  pending.deadline = absl::InfiniteFuture();
  MutexLock lock(&mutex_);
  if (state_ != State::kReady || closing_) return false;
  SendNewToken();
  *id = Add(method, std::move(pending), absl::InfiniteDuration(), frame);
  Write(frame);
  if (!want_input_ && !reading_) UpdateEvents(true);
  return true;
}

void ClientConnection::Next(uint32_t id) {
  MutexLock lock(&mutex_);
  if (calls_.contains(id)) SendFrame(Kind::kNext, id);
}

bool ClientConnection::Begin(uint16_t method, std::string frame, absl::Duration timeout,
                             BlockingCall& call) {
  call.deadline_ = Clock::Steady().Now() + timeout;
  Pending pending;
  pending.blocked = &call;
  pending.deadline = call.deadline_;
  MutexLock lock(&mutex_);
  if (state_ != State::kReady || closing_) return false;
  SendNewToken();
  call.id_ = Add(method, std::move(pending), timeout, frame);
  Write(frame);
  return true;
}

void ClientConnection::Await(BlockingCall& call) {
  {
    MutexLock lock(&mutex_);
    HookedWait hooked;
    // `calls_` borrows `call`; so does a thread that took it from there, until it is answered.
    while (!call.answered_) {
      if (hooked.due()) {
        // Another caller may read while the hook runs, which may call this connection too.
        PassOn();
        mutex_.Unlock();
        hooked.Run();
        mutex_.Lock();
        continue;
      }
      const absl::Duration left = call.deadline_ - Clock::Steady().Now();
      if (left <= absl::ZeroDuration()) {
        if (calls_.erase(call.id_) > 0) {
          SendFrame(Kind::kCancel, call.id_);
          break;
        }
        call.changed_.Wait(&mutex_);
      } else if (reading_ || state_ != State::kReady) {
        queue_.push_back(&call);
        call.changed_.WaitWithTimeout(&mutex_, hooked.Shorten(left));
        queue_.erase(std::find(queue_.begin(), queue_.end(), &call));
      } else {
        ReadForAll(hooked.Shorten(left));
      }
    }
    PassOn();
  }
  if (!call.answered_) {
    call.waiter_.OnReply(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"),
                         "");
  }
}

bool ClientConnection::Call(uint16_t method, std::string frame, absl::Duration timeout,
                            Waiter& waiter) {
  BlockingCall call(waiter);
  if (!Begin(method, std::move(frame), timeout, call)) return false;
  Await(call);
  return true;
}

void ClientConnection::ReadForAll(absl::Duration longest) {
  reading_ = true;
  if (want_input_) UpdateEvents(false);
  mutex_.Unlock();
  const bool open = !AwaitInput(longest) || ReadOnce();
  if (!open) Finish(End::kBroken, "the connection broke");
  mutex_.Lock();
  reading_ = false;
}

bool ClientConnection::AwaitInput(absl::Duration longest) {
  pollfd ready[] = {{fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  const auto look = [&ready](absl::Duration timeout) {
    return poll(ready, std::size(ready), static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  };
  const Instant begun = Clock::Steady().Now();
  int count = 0;
  const absl::Duration quick = stream().tls == nullptr ? kQuickAnswer : kQuickAnswerByTls;
  in_a_row_ = begun - last_answer_ < kInARow;
  if (last_wait_ < quick && in_a_row_) {
    while ((count = look(absl::ZeroDuration())) == 0 && Clock::Steady().Now() - begun < kLooking) {
      sched_yield();
    }
  }
  if (count == 0) count = look(std::min(longest + absl::Milliseconds(1), absl::Hours(1)));
  last_answer_ = Clock::Steady().Now();
  last_wait_ = last_answer_ - begun;
  if (count > 0 && ready[1].revents != 0) {
    eventfd_t wakes;
    eventfd_read(wake_fd_, &wakes);
  }
  return count > 0 && ready[0].revents != 0;
}

// Passes the reading to the next blocked caller; without one, to the loop, if answers may come.
void ClientConnection::PassOn() {
  if (reading_ || state_ != State::kReady) return;
  if (!queue_.empty()) {
    queue_.front()->changed_.Signal();
  } else if (!want_input_ && started_ + streams_ > 0) {
    started_ == 0 && in_a_row_ ? ListenSoon() : UpdateEvents(true);
  }
}

void ClientConnection::ListenSoon() {
  if (std::exchange(listens_soon_, true)) return;
  ClientEventLoop().PostAt(Clock::Steady().Now() + kBeforeListening, [weak = weak_from_this()] {
    const auto self = weak.lock();
    if (self == nullptr) return;
    MutexLock lock(&self->mutex_);
    self->listens_soon_ = false;
    if (self->reading_ || self->want_input_ || self->state_ != State::kReady) return;
    if (Clock::Steady().Now() - self->last_answer_ < kBeforeListening) return self->ListenSoon();
    self->UpdateEvents(true);
  });
}

bool ClientConnection::ReadOnce() {
  do {
    const size_t size = std::max(kReadBytes, std::min(input_.wanted(), kMaxReadBytes));
    char* const room = input_.Room(size);
    const ssize_t count = stream().Receive(room, size);
    if (count < 0) return errno == EAGAIN || errno == EINTR;
    if (count == 0) return false;
    input_.Filled(static_cast<size_t>(count));
    if (!HandleInput()) return false;
  } while (stream().HasInput());
  return true;
}

bool ClientConnection::HandleInput() {
  Frame frame;
  while (true) {
    switch (input_.Read(&frame)) {
      case FrameReader::Next::kMore:
        return true;
      case FrameReader::Next::kBroken:
        return false;
      case FrameReader::Next::kTooLarge:
      case FrameReader::Next::kFrame:
        const bool too_large = frame.body.size() != frame.header.body_bytes;
        if (frame.header.kind == Kind::kPart && !too_large) {
          HandlePart(frame);
        } else if (frame.header.kind == Kind::kReply || frame.header.kind == Kind::kPart) {
          HandleReply(frame, too_large);
        } else {
          return false;
        }
    }
  }
}

void ClientConnection::HandlePart(const Frame& frame) {
  std::shared_ptr<Waiter> waiter;
  {
    MutexLock lock(&mutex_);
    const auto it = calls_.find(frame.header.call);
    if (it != calls_.end() && it->second.streams) waiter = it->second.waiter;
  }
  if (waiter != nullptr) waiter->OnPart(frame.header.call, frame.body);
}

void ClientConnection::HandleReply(const Frame& frame, bool too_large) {
  Pending pending;
  {
    MutexLock lock(&mutex_);
    auto it = calls_.find(frame.header.call);
    if (it == calls_.end()) return;  // the call was given up before
    pending = Remove(it);
    if (frame.header.kind == Kind::kPart) SendFrame(Kind::kCancel, frame.header.call);
  }
  if (too_large) {
    Deliver(std::move(pending),
            grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED,
                         absl::StrCat("an answer of ", frame.header.body_bytes,
                                      " bytes is over max_message_bytes (",
                                      options_.max_message_bytes, ")")),
            "");
  } else if (frame.header.code == 0) {
    Deliver(std::move(pending), grpc::Status::OK, frame.body);
  } else {
    const size_t text = std::min<size_t>(frame.header.extra, frame.body.size());
    Deliver(
        std::move(pending),
        grpc::Status(static_cast<grpc::StatusCode>(frame.header.code),
                     std::string(frame.body.substr(0, text)), std::string(frame.body.substr(text))),
        frame.body);
  }
}

void ClientConnection::Deliver(Pending pending, const grpc::Status& status,
                               absl::string_view body) {
  if (pending.waiter != nullptr) {
    pending.waiter->OnReply(status, body);
    return;
  }
  pending.blocked->waiter_.OnReply(status, body);
  MutexLock lock(&mutex_);
  pending.blocked->answered_ = true;
  pending.blocked->changed_.Signal();
}

void ClientConnection::SendFrame(Kind kind, uint32_t id) {
  Header header;
  header.call = id;
  header.kind = kind;
  std::string frame;
  AppendHeader(header, &frame);
  Write(frame);
}

ClientConnection::Pending ClientConnection::Remove(
    absl::flat_hash_map<uint32_t, Pending>::iterator it) {
  Pending pending = std::move(it->second);
  calls_.erase(it);
  if (pending.waiter != nullptr) --(pending.streams ? streams_ : started_);
  return pending;
}

void ClientConnection::Cancel(uint32_t id) {
  Pending pending;
  {
    MutexLock lock(&mutex_);
    auto it = calls_.find(id);
    if (it == calls_.end()) return;
    pending = Remove(it);
    SendFrame(Kind::kCancel, id);
  }
  const grpc::Status cancelled(grpc::StatusCode::CANCELLED, "cancelled by the caller");
  if (pending.blocked != nullptr) {
    Deliver(std::move(pending), cancelled, "");
    eventfd_write(wake_fd_, 1);
    return;
  }
  ClientEventLoop().Post(
      [waiter = std::move(pending.waiter), cancelled] { waiter->OnReply(cancelled, ""); });
}

void ClientConnection::AskToCancel(uint32_t id, absl::Duration patience) {
  MutexLock lock(&mutex_);
  const auto it = calls_.find(id);
  if (it == calls_.end()) return;
  it->second.deadline = std::min(it->second.deadline, Clock::Steady().Now() + patience);
  SendFrame(Kind::kCancel, id);
}

bool ClientConnection::Expire(Instant now) {
  std::vector<std::shared_ptr<Waiter>> late;
  bool unready = false;
  bool waiting = false;
  {
    MutexLock lock(&mutex_);
    std::vector<uint32_t> ids;
    for (const auto& [id, pending] : calls_) {
      if (pending.waiter != nullptr && pending.deadline < now) ids.push_back(id);
    }
    for (const uint32_t id : ids) {
      late.push_back(Remove(calls_.find(id)).waiter);
      SendFrame(Kind::kCancel, id);
    }
    unready = state_ != State::kReady && state_ != State::kEnded;
    waiting = started_ > 0 || unready;
  }
  for (const std::shared_ptr<Waiter>& waiter : late) {
    waiter->OnReply(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"), "");
  }
  if (unready && now > connect_until_) Finish(End::kBroken, "no greeting in time");
  return waiting;
}

bool ClientConnection::ended() {
  MutexLock lock(&mutex_);
  return state_ == State::kEnded;
}

// Until a connection is ready, its descriptor may change, and only the loop uses it.
void ClientConnection::Close() {
  ClientEventLoop().Post([self = shared_from_this()] { self->Finish(End::kBroken, "closed"); });
}

bool ClientConnection::CloseIfFilesChanged(Instant now) {
  MutexLock lock(&mutex_);
  if (state_ != State::kReady || tls_ == nullptr || closing_) return closing_;
  if (tls_->uses(*options_.tls->Current(now))) return false;
  if (!calls_.empty()) return false;
  closing_ = true;
  Close();
  return true;
}

void ClientConnection::Finish(End end, const std::string& why) {
  absl::flat_hash_map<uint32_t, Pending> calls;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    calls.swap(calls_);
    started_ = 0;
    streams_ = 0;
  }
  if (fd_ >= 0) {
    ClientEventLoop().Remove(fd_);
    shutdown(fd_, SHUT_RDWR);  // wakes the thread that reads; closed with this object
  }
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (auto& [id, pending] : calls) {
    if (pending.blocked != nullptr) {
      Deliver(std::move(pending), Unavailable(why), "");
    } else {
      waiters.push_back(std::move(pending.waiter));
    }
  }
  ClientEventLoop().Post([self = shared_from_this(), waiters = std::move(waiters), end, why] {
    // First, so that a call that is repeated finds no connection that has ended.
    self->on_ready_ = nullptr;
    const auto on_end = std::exchange(self->on_end_, nullptr);
    if (on_end != nullptr) on_end(end, why);
    for (const std::shared_ptr<Waiter>& waiter : waiters) {
      waiter->OnReply(Unavailable(why), "");
    }
  });
}

}  // namespace cohort::framed_rpc
