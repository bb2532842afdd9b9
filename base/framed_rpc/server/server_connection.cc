// One file, though long: reading, calls and replies of a connection share one lock.
#include "base/framed_rpc/server/server_connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/clock.h"
#include "base/rpc/client_names.h"
#include "base/rpc/token_file.h"
#include "base/text/logging.h"

namespace cohort::framed_rpc {
namespace {

// Then other connections continue.
constexpr size_t kReadBudget = size_t{1} << 20;
// A request takes some microseconds, however small it is. A large one counts once more for each
// kBytesPerFrame.
constexpr int kFramesPerTurn = 512;
constexpr size_t kBytesPerFrame = 4096;
constexpr absl::Duration kTurn = absl::Milliseconds(1);
// The clock is read once for so many.
constexpr int kFramesBetweenLooks = 4;
// A client that has to wait between its requests has so many handled together, because each wait
// costs as much as some requests.
constexpr int kFramesBetweenPauses = 32;
// Replies of one delivery leave early from here on.
constexpr size_t kEagerBytes = size_t{64} << 10;

// Lent to the connection that reads: most hold no partial frame, and need no buffer of their own.
std::string& SpareBuffer() {
  static thread_local std::string spare;
  return spare;
}

}  // namespace

ServerConnection::ServerConnection(int fd, std::shared_ptr<const ConnectionContext> context,
                                   EventLoop& loop, FairTurns& turns, ListenerPeer peer)
    : fd_(fd),
      socket_{fd, peer.tls},
      context_(std::move(context)),
      loop_(loop),
      turns_(turns),
      input_(context_->protocol, peer.charged()),
      guard_(context_->limits),
      peer_(std::move(peer)),
      unread_charge_(context_->handler->ChargeUnread(peer_.access.get())),
      events_(EPOLLIN) {}

ServerConnection::~ServerConnection() { close(fd_); }

void ServerConnection::OnEvents(uint32_t events) {
  // The client is gone: nothing can be sent any more.
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) return Close();
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    if ((events & EPOLLOUT) != 0) {
      blocked_ = false;
      FlushLocked();
    }
  }
  readable_ = readable_ || (events & EPOLLIN) != 0;
  if (readable_ || paused_) AwaitTurn();
}

void ServerConnection::AwaitTurn() {
  if (std::exchange(awaits_turn_, true)) return;
  if (turns_client_ == nullptr) turns_client_ = turns_.ClientOf(peer_.Payer());
  turns_.Add(turns_client_, shared_from_this());
}

void ServerConnection::OnTurn() {
  awaits_turn_ = false;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
  }
  bool readable = std::exchange(readable_, false);
  frames_left_ = kFramesPerTurn;
  turn_end_ = Clock::Steady().Now() + kTurn;
  while (readable || paused_) {
    if (WaitsForRate()) return;
    if (frames_left_ <= 0) {
      readable_ = readable;
      return AwaitTurn();
    }
    {
      MutexLock lock(&mutex_);
      handling_ = true;
    }
    // Bytes that were read before come first.
    const bool open = paused_ ? HandleInput() : ReadSome();
    readable = readable && paused_;
    {
      MutexLock lock(&mutex_);
      handling_ = false;
      if (open) FlushLocked();
      if (open && Backlogged()) return;  // until the socket takes more
    }
    if (!open) return Close();
  }
  readable_ = socket_.HasInput();
  if (readable_) AwaitTurn();
}

bool ServerConnection::ReadSome() {
  const auto refuse = [this](const Frame& frame, const absl::Status& error) {
    return HandleFrame(frame, error);
  };
  input_.Borrow(&SpareBuffer());
  bool open = true;
  for (size_t total = 0; open && !paused_ && total < kReadBudget;) {
    size_t size = 0;
    char* const room = input_.Room(&size, refuse);
    if (room == nullptr) {
      open = false;
      break;
    }
    const ssize_t count = socket_.Receive(room, size);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) {
      open = false;
      break;
    }
    input_.Filled(static_cast<size_t>(count));
    has_received_ = true;
    open = HandleInput();
    input_.ChargeTo(peer_.charged());
    open = open && input_.Charge(peer_.HasRole(), refuse);
    total += static_cast<size_t>(count);
    // Less than asked for is all there was: the next question would cost a system call.
    if (static_cast<size_t>(count) < size) break;
  }
  input_.GiveBack(&SpareBuffer());
  return open;
}

bool ServerConnection::WaitsForRate() {
  if (peer_.access == nullptr) return false;
  const std::optional<Instant> until = peer_.access->Pause();
  if (!until.has_value()) return false;
  MutexLock lock(&mutex_);
  if (resume_posted_ || closed_) return true;
  resume_posted_ = true;
  UpdateEvents();
  loop_.PostAt(*until, [self = shared_from_this()] {
    {
      MutexLock done(&self->mutex_);
      self->resume_posted_ = false;
      if (!self->closed_) self->UpdateEvents();
    }
    self->OnEvents(EPOLLIN);
  });
  return true;
}

bool ServerConnection::HandleInput() {
  Frame frame;
  absl::Status error;
  while (true) {
    {
      MutexLock lock(&mutex_);
      paused_ = Backlogged() || frames_left_ <= 0;
    }
    if (frames_left_ <= kFramesPerTurn - kFramesBetweenPauses && peer_.access != nullptr) {
      paused_ = paused_ || peer_.access->Pause().has_value();
    }
    if (paused_) return true;
    switch (input_.Read(&frame, &error)) {
      case RequestReader::Next::kPreface: {
        MutexLock lock(&mutex_);
        output_.Append(context_->protocol.greeting());
        break;
      }
      case RequestReader::Next::kFrame:
        if (!HandleFrame(frame, error)) return false;
        break;
      case RequestReader::Next::kMore:
        return true;
      case RequestReader::Next::kBroken:
        return false;
    }
  }
}

bool ServerConnection::HandleFrame(const Frame& frame, const absl::Status& error) {
  frames_left_ -= 1 + static_cast<int>(frame.header.body_bytes / kBytesPerFrame);
  if (frames_left_ % kFramesBetweenLooks == 0 && Clock::Steady().Now() > turn_end_)
    frames_left_ = 0;
  const uint32_t id = frame.header.call;
  switch (frame.header.kind) {
    case Kind::kCall:
      return error.ok() ? StartCall(frame) : Reject(id, error);
    case Kind::kCancel:
      return CancelCall(id);
    case Kind::kToken:
      return error.ok() && TakeToken(frame.body);
    case Kind::kClient:
      return error.ok() && TakeClient(frame.body);
    case Kind::kNext:
      return SendNextPart(id);
    default:
      return false;  // not a client's to send
  }
}

bool ServerConnection::CancelCall(uint32_t id) {
  std::shared_ptr<ServerCall> call;
  {
    MutexLock lock(&mutex_);
    auto it = calls_.find(id);
    if (it != calls_.end()) {
      call = std::move(it->second);
      calls_.erase(it);
    }
  }
  if (call == nullptr) return CheckIdleFrame(id);  // its reply is on its way
  // The client learns that it misses no answer.
  if (call->Cancel()) SendReply(nullptr, id, absl::CancelledError("cancelled"), {}, nullptr);
  return Check(id, guard_.OnCancelled(call->started(), Clock::Steady().Now(),
                                      peer_.suspect->load(std::memory_order_relaxed)));
}

bool ServerConnection::SendNextPart(uint32_t id) {
  std::shared_ptr<ServerCall> call;
  {
    MutexLock lock(&mutex_);
    const auto it = calls_.find(id);
    if (it != calls_.end()) call = it->second;
  }
  return (call != nullptr && call->Next()) || CheckIdleFrame(id);
}

bool ServerConnection::Run(std::function<void()> task) {
  MutexLock lock(&mutex_);
  if (closed_) return false;
  loop_.Post(std::move(task));
  return true;
}

void ServerConnection::CheckEvery(absl::Duration period) {
  MutexLock lock(&mutex_);
  if (closed_ || std::exchange(has_check_, true)) return;
  loop_.PostAt(Clock::Steady().Now() + period, [weak = weak_from_this(), period] {
    if (const auto self = weak.lock()) self->CheckCalls(period);
  });
}

void ServerConnection::CheckCalls(absl::Duration period) {
  std::vector<std::shared_ptr<ServerCall>> calls;
  {
    MutexLock lock(&mutex_);
    has_check_ = false;
    for (const auto& [id, call] : calls_) calls.push_back(call);
  }
  if (calls.empty()) return;
  const bool has_received = std::exchange(has_received_, false);
  for (const auto& call : calls) {
    if (!has_received && call->Overdue()) return Close();
  }
  CheckEvery(period);
}

bool ServerConnection::TakeToken(absl::string_view token) {
  if (token.size() > kMaxTokenBytes) return false;
  // A token that takes the place of another one does no work.
  if (std::exchange(has_token_, true) && !CheckIdleFrame(0)) return false;
  if (peer_.access == nullptr) return true;
  peer_.access = peer_.access->WithToken(token);
  turns_client_ = nullptr;
  MutexLock lock(&mutex_);
  unread_charge_ = context_->handler->ChargeUnread(peer_.access.get());
  unread_bytes_ = 0;  // charged with the next change
  return true;
}

bool ServerConnection::TakeClient(absl::string_view names) {
  if (names.size() > kMaxClientNamesBytes || std::exchange(has_client_, true)) return false;
  if (peer_.access != nullptr) peer_.access = peer_.access->ForClient(names);
  return true;
}

bool ServerConnection::StartCall(const Frame& frame) {
  peer_.NoteRequest();
  const uint32_t id = frame.header.call;
  const uint32_t timeout = frame.header.extra;
  const Request request{
      *this, id, frame.header.method, frame.body,
      timeout == kNoTimeout ? absl::InfiniteDuration() : absl::Milliseconds(timeout)};
  absl::Status status = context_->protocol.CheckMethod(request.method);
  if (status.ok()) status = context_->handler->Start(request);
  return status.ok() || Reject(id, status);
}

absl::Status ServerConnection::Add(std::shared_ptr<ServerCall> call) {
  const uint32_t id = call->id();
  const size_t max_calls = context_->max_calls;
  {
    MutexLock lock(&mutex_);
    if (max_calls > 0 && calls_.size() >= max_calls) {
      return absl::UnavailableError(
          absl::StrCat("max_concurrent_streams (", max_calls, ") calls are in flight"));
    }
    if (!calls_.emplace(id, std::move(call)).second) {
      return absl::InvalidArgumentError(absl::StrCat("call ", id, " is in flight twice"));
    }
  }
  guard_.OnStarted();
  return absl::OkStatus();
}

bool ServerConnection::Reject(uint32_t id, const absl::Status& status) {
  SendReply(nullptr, id, status, {}, nullptr);
  return CheckIdleFrame(id);
}

bool ServerConnection::CheckIdleFrame(uint32_t id) {
  return Check(id, guard_.OnIdleFrame(Clock::Steady().Now(),
                                      peer_.suspect->load(std::memory_order_relaxed)));
}

bool ServerConnection::Check(uint32_t id, const absl::Status& status) {
  if (status.ok()) return true;
  SendReply(nullptr, id, status, {}, nullptr);
  {
    MutexLock lock(&mutex_);
    FlushLocked();  // what the socket takes at once
  }
  peer_.on_offence(status);
  return false;
}

void ServerConnection::SendReply(const ServerCall* from, uint32_t id, const absl::Status& status,
                                 absl::Span<const SharedBytes> message, ReplyBatch* batch) {
  size_t message_bytes = 0;
  for (const SharedBytes& piece : message) message_bytes += piece.bytes.size();
  std::string error;
  const Header header = MakeReplyHeader(id, status, message_bytes, &error);
  std::shared_ptr<ServerCall> ended;  // outlives the lock
  MutexLock lock(&mutex_);
  // Another call may have the number by now, or have had it before.
  if (auto it = calls_.find(id); it != calls_.end() && it->second.get() == from) {
    ended = std::move(it->second);
    calls_.erase(it);
  }
  SendLocked(header, error, status.ok() ? message : absl::Span<const SharedBytes>(), batch);
}

void ServerConnection::SendPart(uint32_t id, absl::Span<const SharedBytes> message,
                                ReplyBatch* batch) {
  Header header;
  header.call = id;
  header.kind = Kind::kPart;
  for (const SharedBytes& piece : message) {
    header.body_bytes += static_cast<uint32_t>(piece.bytes.size());
  }
  MutexLock lock(&mutex_);
  SendLocked(header, "", message, batch);
}

void ServerConnection::SendLocked(const Header& header, absl::string_view error,
                                  absl::Span<const SharedBytes> message, ReplyBatch* batch) {
  if (closed_ || broken_) return;
  char bytes[kHeaderBytes];
  WriteHeader(header, bytes);
  output_.Append(absl::string_view(bytes, sizeof(bytes)));
  output_.Append(error);
  for (const SharedBytes& piece : message) output_.AppendShared(piece);
  if (handling_ || (corked_ && output_.size() < kEagerBytes)) return;
  if (batch != nullptr && !corked_) {
    corked_ = true;
    batch->Add(shared_from_this());
    return;
  }
  FlushLocked();
}

void ServerConnection::Flush() {
  MutexLock lock(&mutex_);
  corked_ = false;
  FlushLocked();
}

void ServerConnection::FlushLocked() {
  if (closed_ || broken_) return;
  if (!blocked_ && output_.size() > 0) {
    switch (output_.Flush(socket_)) {
      case SendQueue::Flushed::kAll:
        break;
      case SendQueue::Flushed::kPartly:
        blocked_ = true;
        break;
      case SendQueue::Flushed::kBroken:
        Break();
        break;
    }
  }
  if (!broken_ && !ChargeUnread()) Break();
  UpdateEvents();
}

void ServerConnection::Break() {
  broken_ = true;
  shutdown(fd_, SHUT_RDWR);  // the loop hears of it and closes
}

bool ServerConnection::ChargeUnread() {
  const auto bytes = static_cast<int64_t>(blocked_ ? output_.own_size() : 0);
  if (bytes == unread_bytes_) return true;
  const absl::Status charged = unread_charge_->Set(bytes);
  if (!charged.ok()) {
    Log(LogLevel::kWarning, "connection closed: its client does not read its answers",
        {{"unread_bytes", bytes}, {"why", charged.message()}});
    return false;
  }
  unread_bytes_ = bytes;
  return true;
}

void ServerConnection::UpdateEvents() {
  uint32_t events = 0;
  if ((!Backlogged() && !resume_posted_) || broken_) events |= EPOLLIN;
  if (blocked_ && !broken_) events |= EPOLLOUT;
  if (events == events_) return;
  events_ = events;
  loop_.Modify(fd_, events);
}

void ServerConnection::CloseSoon() {
  loop_.Post([self = shared_from_this()] { self->Close(); });
}

void ServerConnection::Close() {
  absl::flat_hash_map<uint32_t, std::shared_ptr<ServerCall>> calls;
  {
    MutexLock lock(&mutex_);
    if (closed_) return;
    closed_ = true;
    calls.swap(calls_);
  }
  loop_.Remove(fd_);
  shutdown(fd_, SHUT_RDWR);
  for (auto& [id, call] : calls) call->Cancel();
}

bool ServerConnection::WaitUntilWritten(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || broken_ || output_.size() == 0;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&written), timeout);
}

ServerCall::ServerCall(const Request& request, Instant started)
    : connection_(request.connection.shared_from_this()), id_(request.call), started_(started) {}

void ServerCall::SendReply(const absl::Status& status, absl::Span<const SharedBytes> message,
                           ReplyBatch* batch) {
  connection_->SendReply(this, id_, status, message, batch);
}

void ServerCall::SendPart(absl::Span<const SharedBytes> message, ReplyBatch* batch) {
  connection_->SendPart(id_, message, batch);
}

}  // namespace cohort::framed_rpc
