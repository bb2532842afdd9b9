// A link at work; lane_link_connect.cc connects it.
#include "client/rendezvous/lane_link.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/rendezvous/lane_loop.h"

namespace cohort::client {
namespace {

constexpr size_t kReadBytes = size_t{16} << 10;
constexpr size_t kMaxReadBytes = size_t{1} << 20;

grpc::Status Unavailable(absl::string_view why) {
  return grpc::Status(grpc::StatusCode::UNAVAILABLE, std::string(why));
}

}  // namespace

LaneLink::LaneLink(std::vector<SocketAddress> addresses, const LaneLinkOptions& options,
                   std::function<void()> on_ready, std::function<void(End)> on_end)
    : addresses_(std::move(addresses)),
      options_(options),
      connect_until_(Clock::Steady().Now() + options.connect_timeout),
      on_ready_(std::move(on_ready)),
      on_end_(std::move(on_end)),
      input_(options.max_message_bytes) {}

LaneLink::~LaneLink() {
  if (fd_ >= 0) close(fd_);
}

int LaneLink::Number(absl::string_view path) const {
  const auto it = numbers_->find(path);
  return it == numbers_->end() ? -1 : it->second;
}

void LaneLink::OnEvents(uint32_t events) {
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

uint32_t LaneLink::Add(uint16_t method, Pending pending, absl::Duration timeout,
                       std::string& frame) {
  do {
    ++last_id_;
  } while (calls_.contains(last_id_));
  if (pending.waiter != nullptr) ++started_;
  calls_.emplace(last_id_, std::move(pending));
  lane::Header header;
  header.body_bytes = static_cast<uint32_t>(frame.size() - lane::kHeaderBytes);
  header.call = last_id_;
  header.kind = lane::Kind::kCall;
  header.method = method;
  header.extra = static_cast<uint32_t>(
      std::clamp<int64_t>(absl::ToInt64Milliseconds(timeout), 0, lane::kNoTimeout - 1));
  lane::WriteHeader(header, &frame[0]);
  return last_id_;
}

void LaneLink::Write(absl::string_view bytes) {
  if (state_ == State::kEnded) return;
  // Most of the time no bytes wait, and the socket takes all of them.
  if (!blocked_ && output_.size() == 0 && !bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
  }
  output_.Append(bytes);
  if (!blocked_ && output_.size() > 0) {
    const lane::SendQueue::Flushed flushed = output_.Flush(fd_);
    blocked_ = flushed == lane::SendQueue::Flushed::kPartly;
    // The socket tells the thread that reads.
    if (flushed == lane::SendQueue::Flushed::kBroken) shutdown(fd_, SHUT_RDWR);
  }
  UpdateEvents(want_input_);
}

void LaneLink::UpdateEvents(bool want_input) {
  want_input_ = want_input;
  uint32_t events = EPOLLRDHUP;
  if (want_input) events |= EPOLLIN;
  if (blocked_) events |= EPOLLOUT;
  if (events == events_) return;
  events_ = events;
  LaneLoop().Modify(fd_, events);
}

bool LaneLink::Start(uint16_t method, std::string frame, absl::Duration timeout,
                     std::shared_ptr<Waiter> waiter, uint32_t* id) {
  Pending pending;
  pending.waiter = std::move(waiter);
  pending.deadline = Clock::Steady().Now() + timeout;
  MutexLock lock(&mutex_);
  if (state_ != State::kReady) return false;
  *id = Add(method, std::move(pending), timeout, frame);
  Write(frame);
  if (!want_input_ && !reading_) UpdateEvents(true);
  LaneLoop().SetTicking(true);
  return true;
}

bool LaneLink::Call(uint16_t method, std::string frame, absl::Duration timeout, Waiter& waiter) {
  Blocked self;
  self.waiter = &waiter;
  const Instant deadline = Clock::Steady().Now() + timeout;
  Pending pending;
  pending.blocked = &self;
  pending.deadline = deadline;
  {
    MutexLock lock(&mutex_);
    if (state_ != State::kReady) return false;
    const uint32_t id = Add(method, std::move(pending), timeout, frame);
    Write(frame);
    // `calls_` borrows `self`; so does a thread that took it from there, until it is told.
    while (!self.told) {
      const absl::Duration left = deadline - Clock::Steady().Now();
      if (left <= absl::ZeroDuration()) {
        if (calls_.erase(id) > 0) {
          SendCancel(id);
          break;
        }
        self.changed.Wait(&mutex_);
      } else if (reading_ || state_ != State::kReady) {
        queue_.push_back(&self);
        self.changed.WaitWithTimeout(&mutex_, left);
        queue_.erase(std::find(queue_.begin(), queue_.end(), &self));
      } else {
        ReadForAll(left);
      }
    }
    PassOn();
  }
  if (!self.told) {
    waiter.OnLaneReply(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"), "");
  }
  return true;
}

void LaneLink::ReadForAll(absl::Duration patience) {
  reading_ = true;
  if (want_input_) UpdateEvents(false);
  mutex_.Unlock();
  pollfd ready = {fd_, POLLIN, 0};
  const absl::Duration timeout = std::min(patience + absl::Milliseconds(1), absl::Hours(1));
  const int count = poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout)));
  const bool open = count <= 0 || ReadOnce();
  if (!open) Finish(End::kBroken, "the connection broke");
  mutex_.Lock();
  reading_ = false;
}

// Passes the reading to the next blocked caller; without one, to the loop, if answers may come.
void LaneLink::PassOn() {
  if (reading_ || state_ != State::kReady) return;
  if (!queue_.empty()) {
    queue_.front()->changed.Signal();
  } else if (started_ > 0 && !want_input_) {
    UpdateEvents(true);
  }
}

bool LaneLink::ReadOnce() {
  const size_t size = std::max(kReadBytes, std::min(input_.wanted(), kMaxReadBytes));
  char* const room = input_.Room(size);
  const ssize_t count = recv(fd_, room, size, MSG_DONTWAIT);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  if (count == 0) return false;
  input_.Filled(static_cast<size_t>(count));
  return HandleInput();
}

bool LaneLink::HandleInput() {
  lane::Frame frame;
  while (true) {
    switch (input_.Read(&frame)) {
      case lane::FrameReader::Next::kMore:
        return true;
      case lane::FrameReader::Next::kBroken:
        return false;
      case lane::FrameReader::Next::kTooLarge:
      case lane::FrameReader::Next::kFrame:
        if (frame.header.kind != lane::Kind::kReply) return false;
        HandleReply(frame, frame.body.size() != frame.header.body_bytes);
    }
  }
}

void LaneLink::HandleReply(const lane::Frame& frame, bool too_large) {
  Pending pending;
  {
    MutexLock lock(&mutex_);
    auto it = calls_.find(frame.header.call);
    if (it == calls_.end()) return;  // the call was given up before
    pending = std::move(it->second);
    calls_.erase(it);
    if (pending.waiter != nullptr) --started_;
  }
  if (too_large) {
    Tell(std::move(pending),
         grpc::Status(
             grpc::StatusCode::RESOURCE_EXHAUSTED,
             absl::StrCat("an answer of ", frame.header.body_bytes,
                          " bytes is over max_message_bytes (", options_.max_message_bytes, ")")),
         "");
  } else if (frame.header.code == 0) {
    Tell(std::move(pending), grpc::Status::OK, frame.body);
  } else {
    const size_t text = std::min<size_t>(frame.header.extra, frame.body.size());
    Tell(
        std::move(pending),
        grpc::Status(static_cast<grpc::StatusCode>(frame.header.code),
                     std::string(frame.body.substr(0, text)), std::string(frame.body.substr(text))),
        frame.body);
  }
}

void LaneLink::Tell(Pending pending, const grpc::Status& status, absl::string_view body) {
  if (pending.waiter != nullptr) {
    pending.waiter->OnLaneReply(status, body);
    return;
  }
  pending.blocked->waiter->OnLaneReply(status, body);
  MutexLock lock(&mutex_);
  pending.blocked->told = true;
  pending.blocked->changed.Signal();
}

void LaneLink::SendCancel(uint32_t id) {
  lane::Header header;
  header.call = id;
  header.kind = lane::Kind::kCancel;
  std::string frame;
  lane::AppendHeader(header, &frame);
  Write(frame);
}

void LaneLink::Cancel(uint32_t id) {
  Pending pending;
  {
    MutexLock lock(&mutex_);
    auto it = calls_.find(id);
    if (it == calls_.end() || it->second.waiter == nullptr) return;
    pending = std::move(it->second);
    calls_.erase(it);
    --started_;
    SendCancel(id);
  }
  LaneLoop().Post([waiter = std::move(pending.waiter)] {
    waiter->OnLaneReply(grpc::Status(grpc::StatusCode::CANCELLED, "cancelled by the caller"), "");
  });
}

bool LaneLink::Expire(Instant now) {
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
      late.push_back(std::move(calls_.find(id)->second.waiter));
      calls_.erase(id);
      --started_;
      SendCancel(id);
    }
    unready = state_ == State::kConnecting || state_ == State::kGreeting;
    waiting = started_ > 0 || unready;
  }
  for (const std::shared_ptr<Waiter>& waiter : late) {
    waiter->OnLaneReply(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "Deadline Exceeded"), "");
  }
  if (unready && now > connect_until_) Finish(End::kBroken, "no greeting in time");
  return waiting;
}

bool LaneLink::ended() {
  MutexLock lock(&mutex_);
  return state_ == State::kEnded;
}

// Until a link is ready, its descriptor may change, and only the loop uses it.
void LaneLink::Close() {
  LaneLoop().Post([self = shared_from_this()] { self->Finish(End::kBroken, "closed"); });
}

void LaneLink::Finish(End end, const std::string& why) {
  absl::flat_hash_map<uint32_t, Pending> calls;
  {
    MutexLock lock(&mutex_);
    if (state_ == State::kEnded) return;
    state_ = State::kEnded;
    calls.swap(calls_);
    started_ = 0;
  }
  if (fd_ >= 0) {
    LaneLoop().Remove(fd_);
    shutdown(fd_, SHUT_RDWR);  // wakes the thread that reads; closed with this object
  }
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (auto& [id, pending] : calls) {
    if (pending.blocked != nullptr) {
      Tell(std::move(pending), Unavailable(why), "");
    } else {
      waiters.push_back(std::move(pending.waiter));
    }
  }
  LaneLoop().Post([self = shared_from_this(), waiters = std::move(waiters), end, why] {
    for (const std::shared_ptr<Waiter>& waiter : waiters) {
      waiter->OnLaneReply(Unavailable(why), "");
    }
    self->on_ready_ = nullptr;
    const std::function<void(End)> on_end = std::exchange(self->on_end_, nullptr);
    if (on_end != nullptr) on_end(end);
  });
}

}  // namespace cohort::client
