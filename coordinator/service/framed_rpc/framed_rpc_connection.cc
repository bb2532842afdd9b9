#include "coordinator/service/framed_rpc/framed_rpc_connection.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/memory/no_memory.h"
#include "base/rpc/status_conversion.h"
#include "base/text/logging.h"

namespace cohort::coordinator {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;
// Then other connections continue.
constexpr size_t kReadBudget = size_t{1} << 20;
constexpr int kMaxPasses = 4;
// A request takes some microseconds, however small it is.
constexpr int kFramesPerIteration = 512;
// Replies of one delivery leave early from here on.
constexpr size_t kEagerBytes = size_t{64} << 10;

// Lent to the connection that reads: most hold no partial frame, and need no buffer of their own.
std::string& SpareBuffer() {
  static thread_local std::string spare;
  return spare;
}

}  // namespace

FramedRpcConnection::FramedRpcConnection(int fd, const FramedRpcProtocol& protocol, EventLoop& loop,
                                         FramedRpcPeer peer)
    : fd_(fd),
      protocol_(protocol),
      loop_(loop),
      input_(protocol.max_body_bytes),
      incoming_(peer.incoming),
      guard_(protocol.limits),
      peer_(std::move(peer)),
      unread_(protocol.dispatcher.engine().account(), MemoryKind::kOutput),
      events_(EPOLLIN) {}

FramedRpcConnection::~FramedRpcConnection() { close(fd_); }

void FramedRpcConnection::OnEvents(uint32_t events) {
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
  bool readable = (events & EPOLLIN) != 0;
  frames_left_ = kFramesPerIteration;
  for (int pass = 0; readable || paused_; ++pass) {
    if (pass == kMaxPasses || frames_left_ == 0) {  // then others have theirs
      loop_.Post([self = shared_from_this()] { self->OnEvents(0); });
      return;
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
}

bool FramedRpcConnection::ReadSome() {
  input_.Borrow(&SpareBuffer());
  bool open = true;
  for (size_t total = 0; open && !paused_ && total < kReadBudget;) {
    // Room for at most as many bytes as have arrived: a client that declares a large frame does not
    // get memory for it in advance.
    size_t size = std::max(kReadBytes, std::min({input_.wanted(), input_.held(), kReadBudget}));
    char* const room = RoomFor(size);
    if (room == nullptr) {
      open = false;
      break;
    }
    size = std::min(size, input_.room());
    const ssize_t count = recv(fd_, room, size, MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (count <= 0) {
      open = false;
      break;
    }
    input_.Filled(static_cast<size_t>(count));
    open = HandleInput() && ChargeInput();
    total += static_cast<size_t>(count);
    // Less than asked for is all there was: the next question would cost a system call.
    if (static_cast<size_t>(count) < size) break;
  }
  input_.GiveBack(&SpareBuffer());
  incoming_.Set(static_cast<int64_t>(input_.memory()));
  return open;
}

bool FramedRpcConnection::ChargeInput() {
  if (!incoming_.Set(static_cast<int64_t>(input_.memory()))) return true;
  const absl::Status status = incoming_.all()->Check();
  if (status.ok() || input_.wanted() == 0) return true;
  return GiveUpFrame([&](absl::string_view operation, int64_t bytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        operation, ": no room for a request of ", bytes, " bytes: ", status.message()));
  });
}

bool FramedRpcConnection::GiveUpFrame(
    const std::function<absl::Status(absl::string_view, int64_t)>& why) {
  framed_rpc::Frame frame;
  if (!input_.GiveUpFrame(&frame)) return false;
  incoming_.Set(0);
  const uint16_t method = frame.header.method;
  const std::string operation = method < protocol_.methods.size()
                                    ? GetMethod(protocol_.methods[method]).path()
                                    : "a call by frames";
  return HandleFrame(frame, why(operation, frame.header.body_bytes));
}

char* FramedRpcConnection::RoomFor(size_t size) {
  try {
    return input_.Room(size);
  } catch (const std::bad_alloc&) {
    const auto no_memory = [](absl::string_view operation, int64_t bytes) {
      return NoMemory(operation, "a request", bytes);
    };
    if (!GiveUpFrame(no_memory)) return nullptr;
  }
  try {
    return input_.Room(kReadBytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

bool FramedRpcConnection::HandleInput() {
  if (!greeted_) {
    absl::string_view preface;
    if (!input_.Peek(framed_rpc::kPreface.size(), &preface)) return true;
    if (preface != framed_rpc::kPreface) return false;
    input_.Skip(preface.size());
    greeted_ = true;
    MutexLock lock(&mutex_);
    output_.Append(protocol_.hello);
  }
  framed_rpc::Frame frame;
  while (true) {
    {
      MutexLock lock(&mutex_);
      paused_ = Backlogged() || frames_left_ == 0;
    }
    if (paused_) return true;
    switch (input_.Read(&frame)) {
      case framed_rpc::FrameReader::Next::kMore:
        return true;
      case framed_rpc::FrameReader::Next::kBroken:
        return false;
      case framed_rpc::FrameReader::Next::kTooLarge:
        if (!HandleFrame(frame, TooLarge(frame))) return false;
        break;
      case framed_rpc::FrameReader::Next::kFrame:
        if (!HandleFrame(frame, absl::OkStatus())) return false;
        break;
    }
  }
}

absl::Status FramedRpcConnection::TooLarge(const framed_rpc::Frame& frame) const {
  return absl::ResourceExhaustedError(absl::StrCat("a request of ", frame.header.body_bytes,
                                                   " bytes is over max_message_bytes (",
                                                   protocol_.max_body_bytes, ")"));
}

bool FramedRpcConnection::HandleFrame(const framed_rpc::Frame& frame, const absl::Status& error) {
  --frames_left_;
  const uint32_t id = frame.header.call;
  switch (frame.header.kind) {
    case framed_rpc::Kind::kCall:
      return error.ok() ? StartCall(frame) : Reject(id, error);
    case framed_rpc::Kind::kCancel:
      return CancelCall(id);
    default:
      return false;  // not a client's to send
  }
}

bool FramedRpcConnection::CancelCall(uint32_t id) {
  std::shared_ptr<FramedRpcCall> call;
  {
    MutexLock lock(&mutex_);
    auto it = calls_.find(id);
    if (it != calls_.end()) {
      call = std::move(it->second);
      calls_.erase(it);
    }
  }
  if (call == nullptr) return CheckIdleFrame(id);  // its reply is on its way
  call->Cancel();
  return Check(id, guard_.OnCancelled(call->started(), Clock::Steady().Now(),
                                      peer_.suspect->load(std::memory_order_relaxed)));
}

bool FramedRpcConnection::StartCall(const framed_rpc::Frame& frame) {
  const uint32_t id = frame.header.call;
  if (frame.header.method >= protocol_.methods.size()) {
    return Reject(id, absl::UnimplementedError(absl::StrCat("no method ", frame.header.method)));
  }
  auto call = std::make_shared<FramedRpcCall>(protocol_.dispatcher, shared_from_this(), id,
                                              protocol_.methods[frame.header.method]);
  bool full = false;
  bool added = false;
  {
    MutexLock lock(&mutex_);
    full = protocol_.max_calls > 0 && calls_.size() >= protocol_.max_calls;
    added = !full && calls_.emplace(id, call).second;
  }
  if (full) {
    return Reject(
        id, absl::UnavailableError(absl::StrCat("max_concurrent_streams (", protocol_.max_calls,
                                                ") calls are in flight")));
  }
  if (!added) {
    return Reject(id, absl::InvalidArgumentError(absl::StrCat("call ", id, " is in flight twice")));
  }
  guard_.OnStarted();
  const uint32_t timeout = frame.header.extra;
  call->Start(frame.body, timeout == framed_rpc::kNoTimeout ? absl::InfiniteDuration()
                                                            : absl::Milliseconds(timeout));
  return true;
}

bool FramedRpcConnection::Reject(uint32_t id, const absl::Status& status) {
  Reply(nullptr, id, status, MessageBytes(), nullptr);
  return CheckIdleFrame(id);
}

bool FramedRpcConnection::CheckIdleFrame(uint32_t id) {
  return Check(id, guard_.OnIdleFrame(Clock::Steady().Now(),
                                      peer_.suspect->load(std::memory_order_relaxed)));
}

bool FramedRpcConnection::Check(uint32_t id, const absl::Status& status) {
  if (status.ok()) return true;
  Reply(nullptr, id, status, MessageBytes(), nullptr);
  {
    MutexLock lock(&mutex_);
    FlushLocked();  // what the socket takes at once
  }
  peer_.on_offence(status);
  return false;
}

void FramedRpcConnection::Reply(const FramedRpcCall* from, uint32_t id, const absl::Status& status,
                                const MessageBytes& message, DeliveryContext* context) {
  framed_rpc::Header header;
  header.call = id;
  header.kind = framed_rpc::Kind::kReply;
  header.code = static_cast<uint8_t>(status.code());
  std::string error;
  if (status.ok()) {
    header.body_bytes = static_cast<uint32_t>(message.size());
  } else {
    // Cut as gRPC's are: the same call has the same answer on both ways.
    const grpc::Status cut = ToGrpcStatus(status);
    error = absl::StrCat(cut.error_message(), cut.error_details());
    header.extra = static_cast<uint32_t>(cut.error_message().size());
    header.body_bytes = static_cast<uint32_t>(error.size());
  }
  char start[framed_rpc::kHeaderBytes];
  framed_rpc::WriteHeader(header, start);
  std::shared_ptr<FramedRpcCall> ended;  // outlives the lock
  MutexLock lock(&mutex_);
  // Another call may have the number by now, or have had it before.
  if (auto it = calls_.find(id); it != calls_.end() && it->second.get() == from) {
    ended = std::move(it->second);
    calls_.erase(it);
  }
  if (closed_ || broken_) return;
  output_.Append(absl::string_view(start, sizeof(start)));
  output_.Append(error);
  for (const MessageBytes::Piece& piece : message.pieces()) {
    output_.AppendShared(piece.keep, piece.bytes, piece.own);
  }
  if (handling_ || (corked_ && output_.size() < kEagerBytes)) return;
  if (context != nullptr && !corked_) {
    corked_ = true;
    context->corked.push_back(shared_from_this());
    return;
  }
  FlushLocked();
}

void FramedRpcConnection::Flush() {
  MutexLock lock(&mutex_);
  corked_ = false;
  FlushLocked();
}

void FramedRpcConnection::FlushLocked() {
  if (closed_ || broken_) return;
  if (!blocked_ && output_.size() > 0) {
    switch (output_.Flush(fd_)) {
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

void FramedRpcConnection::Break() {
  broken_ = true;
  shutdown(fd_, SHUT_RDWR);  // the loop hears of it and closes
}

bool FramedRpcConnection::ChargeUnread() {
  const int64_t before = unread_.bytes();
  const auto bytes = static_cast<int64_t>(blocked_ ? output_.own_size() : 0);
  // Little is no danger, and a client that is slow for a moment has little.
  if (bytes > before && bytes > static_cast<int64_t>(kEagerBytes)) {
    const absl::Status room = protocol_.dispatcher.engine().CheckRoom(
        MemoryKind::kOutput, bytes - before, Share::kGoingOn);
    if (!room.ok()) {
      Log(LogLevel::kWarning, "connection closed: its client does not read its answers",
          {{"unread_bytes", bytes}, {"why", room.message()}});
      return false;
    }
  }
  unread_.Set(bytes);
  return true;
}

void FramedRpcConnection::UpdateEvents() {
  uint32_t events = 0;
  if (!Backlogged() || broken_) events |= EPOLLIN;
  if (blocked_ && !broken_) events |= EPOLLOUT;
  if (events == events_) return;
  events_ = events;
  loop_.Modify(fd_, events);
}

void FramedRpcConnection::CloseSoon() {
  loop_.Post([self = shared_from_this()] { self->Close(); });
}

void FramedRpcConnection::Close() {
  absl::flat_hash_map<uint32_t, std::shared_ptr<FramedRpcCall>> calls;
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

bool FramedRpcConnection::WaitUntilWritten(absl::Duration timeout) {
  MutexLock lock(&mutex_);
  const auto written = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closed_ || broken_ || output_.size() == 0;
  };
  return mutex_.AwaitWithTimeout(absl::Condition(&written), timeout);
}

}  // namespace cohort::coordinator
