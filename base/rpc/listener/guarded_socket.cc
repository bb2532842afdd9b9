// One file, because recvmsg, sendmsg, epoll_ctl and getpeername share the state of a slot.
#include "base/rpc/listener/guarded_socket.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/threads/mutex.h"
#include "base/tls/stream_socket.h"
#include "base/unique_fd.h"

namespace cohort {
namespace {

using RecvMessage = ssize_t (*)(int, msghdr*, int);
using SendMessage = ssize_t (*)(int, const msghdr*, int);
using EpollControl = int (*)(int, int, int, epoll_event*);
using GetPeerName = int (*)(int, sockaddr*, socklen_t*);

// A connection with more open streams than this has so many of them reset at a time when it ends.
constexpr size_t kResetsAtATime = 32;
constexpr absl::Duration kBetweenResets = absl::Milliseconds(4);
// Buffers of one read; gRPC gives at most so many.
constexpr size_t kMostParts = 64;

EpollControl SystemEpollControl() {
  static const auto next = reinterpret_cast<EpollControl>(dlsym(RTLD_NEXT, "epoll_ctl"));
  return next;
}

// The state of one descriptor number. It is never freed, so a reader finds it without a lock.
struct Slot {
  std::atomic<uint64_t> cookie{0};  // 0: not guarded
  std::atomic<bool> ending{false};  // gRPC gets resets of its streams, then `end_error`
  // Held while bytes are sent and seen. Before `mutex`.
  Mutex send_mutex;
  Mutex mutex;
  std::unique_ptr<Http2Guard> guard ABSL_GUARDED_BY(mutex);
  std::shared_ptr<GuardedSocket> socket ABSL_GUARDED_BY(mutex);
  bool paused ABSL_GUARDED_BY(mutex) = false;  // until ResumeSocket
  int end_error ABSL_GUARDED_BY(mutex) = 0;    // 0: the client closed it
  std::string resets ABSL_GUARDED_BY(mutex);   // frames that gRPC has not read yet
  // How gRPC waits for it. Negative: it does not.
  int epoll ABSL_GUARDED_BY(mutex) = -1;
  epoll_event event ABSL_GUARDED_BY(mutex) = {};
  std::atomic<bool> has_tls{false};      // nothing may pass as plain text
  UniqueFd edge ABSL_GUARDED_BY(mutex);  // see MakeEdge
  IncomingCharge incoming ABSL_GUARDED_BY(mutex);
};

constexpr int kPageSlots = 1024;
constexpr int kPages = 4096;
struct Page {
  std::atomic<Slot*> slots[kPageSlots] = {};
};
std::atomic<Page*> pages[kPages] = {};

Slot* FindSlot(int fd) {
  if (fd < 0 || fd >= kPages * kPageSlots) return nullptr;
  const Page* const page = pages[fd / kPageSlots].load(std::memory_order_acquire);
  return page == nullptr ? nullptr : page->slots[fd % kPageSlots].load(std::memory_order_acquire);
}

// The first of several threads that make the same one wins.
template <typename T>
T* FindOrMake(std::atomic<T*>& place) {
  T* found = place.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  auto made = std::make_unique<T>();
  if (place.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) {
    return made.release();
  }
  return found;
}

Slot* MakeSlot(int fd) {
  if (fd < 0 || fd >= kPages * kPageSlots) return nullptr;
  return FindOrMake(FindOrMake(pages[fd / kPageSlots])->slots[fd % kPageSlots]);
}

bool IsGuarded(int fd) {
  const Slot* const slot = FindSlot(fd);
  return slot != nullptr && slot->cookie.load(std::memory_order_acquire) != 0;
}

// The socket of the slot has no more to say.
void Mute(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  slot.guard.reset();
  slot.socket.reset();
  slot.incoming = IncomingCharge();
}

void Clear(Slot& slot) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  slot.cookie.store(0, std::memory_order_release);
  slot.ending.store(false, std::memory_order_relaxed);
  slot.has_tls.store(false, std::memory_order_relaxed);
  slot.edge = UniqueFd();
  Mute(slot);
  slot.paused = false;
  slot.resets.clear();
  slot.epoll = -1;
}

// False: the number belongs to another socket by now.
bool Owns(const Slot& slot, int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  const uint64_t cookie = slot.cookie.load(std::memory_order_relaxed);
  return cookie != 0 && cookie == SocketCookie(fd);
}

// Names the socket, so that a call of gRPC leads to it. False: it has no rights, and its own name.
bool NamePeer(int fd, sockaddr_un* name) {
  Slot& slot = *FindSlot(fd);
  MutexLock lock(&slot.mutex);
  if (!Owns(slot, fd) || slot.socket == nullptr || slot.socket->access == nullptr) return false;
  *name = {};
  name->sun_family = AF_UNIX;
  absl::StrCat("/", fd, "/", slot.cookie.load(std::memory_order_relaxed))
      .copy(name->sun_path, sizeof(name->sun_path) - 1);
  return true;
}

// Sends the client the reason, if it still reads: a GOAWAY frame with ENHANCE_YOUR_CALM.
void SendGoAway(const StreamSocket& socket, absl::string_view why) {
  constexpr size_t kMostText = 200;
  const std::string text(why.substr(0, kMostText));
  std::string frame =
      absl::StrCat(absl::string_view("\0\0", 2), std::string(1, static_cast<char>(text.size() + 8)),
                   absl::string_view("\7\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0b", 14), text);
  [[maybe_unused]] const ssize_t sent = socket.Send(frame);
}

// Calls `see` with the first `count` bytes of the message's buffers, until it returns false.
template <typename See>
void ForEachPart(const msghdr& message, size_t count, See see) {
  for (size_t i = 0; i < message.msg_iovlen && count > 0; ++i) {
    const size_t take = std::min(count, message.msg_iov[i].iov_len);
    const char* const bytes = static_cast<const char*>(message.msg_iov[i].iov_base);
    if (!see(absl::string_view(bytes, take))) return;
    count -= take;
  }
}

size_t Room(const msghdr& message) {
  size_t room = 0;
  for (size_t i = 0; i < message.msg_iovlen; ++i) room += message.msg_iov[i].iov_len;
  return room;
}

// `parts` become the message's buffers from byte `skip` on, of `most` bytes at most.
size_t Slice(const msghdr& message, size_t skip, size_t most, iovec (&parts)[kMostParts]) {
  size_t count = 0;
  for (size_t i = 0; i < message.msg_iovlen && most > 0 && count < kMostParts; ++i) {
    const iovec& whole = message.msg_iov[i];
    const size_t from = std::min(skip, whole.iov_len);
    skip -= from;
    const size_t take = std::min(most, whole.iov_len - from);
    if (take == 0) continue;
    most -= take;
    parts[count++] = {static_cast<char*>(whole.iov_base) + from, take};
  }
  return count;
}

ssize_t Fail(int error) {
  errno = error;
  return -1;
}

// Has epoll say that the socket is readable, whether it is or not: TLS may have taken all bytes
// from it. A descriptor that always is readable speaks for it, once.
void MakeEdge(Slot& slot, int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  slot.edge = UniqueFd(eventfd(1, EFD_CLOEXEC | EFD_NONBLOCK));
  epoll_event event = slot.event;
  event.events = EPOLLIN | EPOLLONESHOT;
  const bool made = SystemEpollControl()(slot.epoll, EPOLL_CTL_ADD, slot.edge.get(), &event) == 0;
  // Its client would wait for ever.
  if (!made) shutdown(fd, SHUT_RDWR);
}

void PauseReading(Slot& slot, int fd, absl::Duration pause)
    ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  if (slot.epoll < 0 || slot.socket == nullptr || !slot.socket->resume_at) return;
  slot.paused = slot.socket->resume_at(fd, slot.cookie.load(std::memory_order_relaxed),
                                       Clock::Steady().Now() + pause);
}

// Whether reading waits for the rate of the client's tenant (PeerAccess::Pause).
bool WaitsForRate(Slot& slot, int fd) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  if (slot.socket->access == nullptr) return false;
  const std::optional<Instant> until = slot.socket->access->Pause();
  if (until.has_value()) PauseReading(slot, fd, *until - Clock::Steady().Now());
  return slot.paused;
}

// The connection is over. Whether it has so many streams that they are to be reset first, which
// needs a reader that is between two frames.
bool EndSlowly(Slot& slot, int error) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  if (slot.guard->open_streams() <= kResetsAtATime || slot.epoll < 0) return false;
  slot.end_error = error;
  slot.ending.store(true, std::memory_order_relaxed);
  return true;
}

// The next bytes for gRPC of a connection that ends. Its buffers may be shorter than a frame.
ssize_t ReadResets(Slot& slot, int fd, msghdr* message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  std::string& frames = slot.resets;
  if (frames.empty()) frames = slot.guard->ResetStreams(kResetsAtATime);
  if (frames.empty()) {
    Mute(slot);
    return slot.end_error == 0 ? 0 : Fail(slot.end_error);
  }
  iovec parts[kMostParts];
  const size_t count = Slice(*message, 0, frames.size(), parts);
  size_t copied = 0;
  for (size_t i = 0; i < count; ++i) {
    frames.copy(static_cast<char*>(parts[i].iov_base), parts[i].iov_len, copied);
    copied += parts[i].iov_len;
  }
  frames.erase(0, copied);
  message->msg_controllen = 0;
  message->msg_flags = 0;
  if (frames.empty()) PauseReading(slot, fd, kBetweenResets);
  return static_cast<ssize_t>(copied);
}

// The client may answer bytes before Send has shown them to the guard. Waits until it has, without
// `slot.mutex`; gRPC does not close a socket that it reads from, so the guard stays.
void AwaitSent(Slot& slot) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  slot.mutex.Unlock();
  slot.send_mutex.Lock();
  slot.send_mutex.Unlock();
  slot.mutex.Lock();
}

// The result of a look at received bytes.
struct Seen {
  size_t count = 0;       // so many of them are for gRPC
  size_t next_piece = 0;  // 0: no more now
  bool closed = false;    // the connection has been shut down
};

// The bytes are for gRPC. Reading goes on, or pauses.
Seen Accept(Slot& slot, int fd, size_t count) ABSL_EXCLUSIVE_LOCKS_REQUIRED(slot.mutex) {
  Seen seen;
  seen.count = count;
  const absl::Duration pause = slot.guard->Pause();
  if (pause > absl::ZeroDuration()) PauseReading(slot, fd, pause);
  if (!slot.paused) seen.next_piece = slot.guard->most_to_read();
  return seen;
}

Seen SeeReceived(Slot& slot, int fd, const msghdr& message, size_t count) {
  std::shared_ptr<GuardedSocket> socket;
  absl::Status status;
  Seen seen;
  std::optional<size_t> whole;  // bytes up to the end of the last complete frame
  {
    MutexLock lock(&slot.mutex);
    if (slot.guard == nullptr) {
      seen.closed = true;
      return seen;
    }
    socket = slot.socket;
    const bool suspect = socket->suspect->load(std::memory_order_relaxed);
    const Instant now = Clock::Steady().Now();
    size_t before = 0;  // bytes in earlier parts
    ForEachPart(message, count, [&](absl::string_view part) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      status = slot.guard->OnReceived(part, now, suspect, [&slot] { AwaitSent(slot); });
      if (const auto bytes = slot.guard->whole_bytes(); bytes.has_value()) whole = before + *bytes;
      before += part.size();
      return status.ok();
    });
    if (slot.guard->has_request()) socket->has_request.store(true, std::memory_order_relaxed);
    const bool grew = slot.incoming.Set(slot.guard->unfinished_bytes());
    if (status.ok() && !grew) return Accept(slot, fd, count);
  }
  // This looks at other slots.
  if (status.ok()) status = socket->incoming->Check();
  {
    MutexLock lock(&slot.mutex);
    if (slot.guard == nullptr || slot.socket != socket) {
      seen.closed = true;
      return seen;
    }
    if (status.ok()) return Accept(slot, fd, count);
    seen.closed = true;
    if (whole.has_value() && EndSlowly(slot, ECONNRESET)) {
      seen.count = *whole;
    } else {
      Mute(slot);
    }
  }
  SendGoAway({fd, socket->tls}, status.message());
  shutdown(fd, SHUT_RDWR);
  socket->on_offence(status);
  return seen;
}

// recvmsg of a socket whose bytes go through TLS.
ssize_t ReceiveByTls(TlsSession& tls, msghdr* message) {
  message->msg_controllen = 0;
  message->msg_flags = 0;
  size_t total = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    const iovec& part = message->msg_iov[i];
    const ssize_t count = tls.Receive(part.iov_base, part.iov_len);
    if (count <= 0) return total > 0 ? static_cast<ssize_t>(total) : count;
    total += static_cast<size_t>(count);
    if (static_cast<size_t>(count) < part.iov_len) break;
  }
  return static_cast<ssize_t>(total);
}

// recvmsg of a guarded socket: in pieces, each of which is looked at before the next one is read.
ssize_t Receive(RecvMessage next, int fd, msghdr* message, int flags) {
  Slot& slot = *FindSlot(fd);
  size_t piece = 0;
  std::shared_ptr<TlsSession> tls;
  {
    MutexLock lock(&slot.mutex);
    if (Owns(slot, fd)) {
      slot.edge = UniqueFd();
      if (slot.guard == nullptr) return Fail(ECONNRESET);
      if (slot.paused || WaitsForRate(slot, fd)) return Fail(EAGAIN);
      if (slot.ending.load(std::memory_order_relaxed)) return ReadResets(slot, fd, message);
      piece = slot.guard->most_to_read();
      tls = slot.socket->tls;
    }
  }
  if (piece == 0) return next(fd, message, flags);
  const size_t room = Room(*message);
  const size_t control = message->msg_controllen;
  size_t total = 0;
  while (true) {
    iovec parts[kMostParts];
    msghdr part = *message;
    part.msg_iov = parts;
    part.msg_iovlen = Slice(*message, total, piece, parts);
    part.msg_controllen = control;
    const ssize_t count = tls != nullptr ? ReceiveByTls(*tls, &part) : next(fd, &part, flags);
    if (count <= 0 && total > 0) return static_cast<ssize_t>(total);
    message->msg_controllen = part.msg_controllen;
    message->msg_flags = part.msg_flags;
    if (count <= 0) {
      const int error = errno;
      if (room == 0 || (count < 0 && (error == EAGAIN || error == EINTR))) return count;
      MutexLock lock(&slot.mutex);
      const bool slowly = slot.guard != nullptr && slot.guard->between_frames() &&
                          EndSlowly(slot, count == 0 ? 0 : error);
      if (slowly) return ReadResets(slot, fd, message);
      // The client is gone, so gRPC drops the parts of its requests that have arrived.
      if (Owns(slot, fd)) slot.incoming.Set(0);
      errno = error;
      return count;
    }
    const Seen seen = SeeReceived(slot, fd, part, static_cast<size_t>(count));
    total += seen.count;
    if (seen.closed) {
      if (total > 0) return static_cast<ssize_t>(total);
      return Receive(next, fd, message, flags);  // resets, or the end
    }
    const bool more = static_cast<size_t>(count) == Room(part) && total < room;
    if (seen.next_piece == 0 || !more) return static_cast<ssize_t>(total);
    piece = seen.next_piece;
  }
}

// Whether to drop gRPC's bytes for a connection that is ending. (An error would end all its streams
// at once.)
bool DropsSent(int fd) {
  Slot& slot = *FindSlot(fd);
  if (!slot.ending.load(std::memory_order_relaxed)) return false;
  MutexLock lock(&slot.mutex);
  return Owns(slot, fd) && slot.guard != nullptr;
}

// epoll_ctl of a guarded socket: notes how gRPC waits for it.
int ControlGuarded(EpollControl next, int epoll, int operation, int fd, epoll_event* event) {
  Slot& slot = *FindSlot(fd);
  MutexLock lock(&slot.mutex);
  const int result = next(epoll, operation, fd, event);
  if (result != 0 || !Owns(slot, fd)) return result;
  slot.epoll = operation == EPOLL_CTL_DEL ? -1 : epoll;
  slot.edge = UniqueFd();
  if (operation == EPOLL_CTL_DEL) return result;
  slot.event = *event;
  if (slot.has_tls.load(std::memory_order_relaxed)) MakeEdge(slot, fd);
  return result;
}

ssize_t SendBytes(Slot& slot, SendMessage next, int fd, const msghdr* message, int flags) {
  if (!slot.has_tls.load(std::memory_order_relaxed)) return next(fd, message, flags);
  std::shared_ptr<TlsSession> tls;
  {
    MutexLock lock(&slot.mutex);
    if (!Owns(slot, fd)) return next(fd, message, flags);
    if (slot.socket == nullptr) return Fail(EPIPE);
    tls = slot.socket->tls;
  }
  return tls->Send(absl::MakeConstSpan(message->msg_iov, message->msg_iovlen));
}

// sendmsg of a guarded socket.
ssize_t Send(SendMessage next, int fd, const msghdr* message, int flags) {
  if (DropsSent(fd)) return static_cast<ssize_t>(Room(*message));
  Slot& slot = *FindSlot(fd);
  MutexLock send_lock(&slot.send_mutex);
  const ssize_t count = SendBytes(slot, next, fd, message, flags);
  if (count <= 0) return count;
  MutexLock lock(&slot.mutex);
  if (slot.guard == nullptr || !Owns(slot, fd)) return count;
  ForEachPart(*message, static_cast<size_t>(count),
              [&](absl::string_view part) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                slot.guard->OnSent(part);
                return true;
              });
  slot.incoming.Set(slot.guard->unfinished_bytes());
  return count;
}

}  // namespace

uint64_t SocketCookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

void GuardSocket(int fd, const Http2Limits& limits, std::shared_ptr<GuardedSocket> socket) {
  Slot* const slot = MakeSlot(fd);
  if (slot == nullptr) return;
  MutexLock lock(&slot->mutex);
  Clear(*slot);
  slot->guard = std::make_unique<Http2Guard>(limits);
  slot->incoming = IncomingCharge(socket->incoming);
  slot->has_tls.store(socket->tls != nullptr, std::memory_order_relaxed);
  slot->socket = std::move(socket);
  slot->cookie.store(SocketCookie(fd), std::memory_order_release);
}

std::shared_ptr<PeerAccess> AccessOfGrpcPeer(const std::string& peer) {
  absl::string_view name = peer;
  if (!absl::ConsumePrefix(&name, "unix:/")) return nullptr;
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  int fd = 0;
  uint64_t cookie = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &fd) ||
      !absl::SimpleAtoi(parts[1], &cookie)) {
    return nullptr;
  }
  Slot* const slot = FindSlot(fd);
  if (slot == nullptr) return nullptr;
  MutexLock lock(&slot->mutex);
  const bool is_it = cookie != 0 && slot->cookie.load(std::memory_order_relaxed) == cookie;
  return is_it && slot->socket != nullptr ? slot->socket->access : nullptr;
}

void ForgetSocket(int fd, uint64_t cookie) {
  Slot* const slot = FindSlot(fd);
  if (slot == nullptr) return;
  MutexLock lock(&slot->mutex);
  if (slot->cookie.load(std::memory_order_relaxed) == cookie) Clear(*slot);
}

void ResumeSocket(int fd, uint64_t cookie) {
  Slot* const slot = FindSlot(fd);
  if (slot == nullptr) return;
  MutexLock lock(&slot->mutex);
  if (slot->cookie.load(std::memory_order_relaxed) != cookie || !Owns(*slot, fd)) return;
  slot->paused = false;
  if (slot->epoll < 0) return;
  if (slot->has_tls.load(std::memory_order_relaxed)) return MakeEdge(*slot, fd);
  // An edge, if there is something to read. Were the number another socket's by now, gRPC could
  // register it only after this, as epoll_ctl below takes the lock.
  SystemEpollControl()(slot->epoll, EPOLL_CTL_MOD, fd, &slot->event);
}

void ReclaimIncomingBytes() {
  for (int number = 0; number < kPages; ++number) {
    Page* const page = pages[number].load(std::memory_order_acquire);
    if (page == nullptr) continue;
    for (int index = 0; index < kPageSlots; ++index) {
      Slot* const slot = page->slots[index].load(std::memory_order_acquire);
      if (slot == nullptr) continue;
      MutexLock lock(&slot->mutex);
      if (slot->incoming.bytes() == 0) continue;
      if (SocketCookie(number * kPageSlots + index) != slot->cookie.load()) slot->incoming.Set(0);
    }
  }
}

}  // namespace cohort

// In front of the C library's, for the whole program.
extern "C" {

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto next = reinterpret_cast<cohort::RecvMessage>(dlsym(RTLD_NEXT, "recvmsg"));
  if ((flags & (MSG_PEEK | MSG_ERRQUEUE)) != 0 || !cohort::IsGuarded(fd)) {
    return next(fd, message, flags);
  }
  return cohort::Receive(next, fd, message, flags);
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto next = reinterpret_cast<cohort::SendMessage>(dlsym(RTLD_NEXT, "sendmsg"));
  if (!cohort::IsGuarded(fd)) return next(fd, message, flags);
  return cohort::Send(next, fd, message, flags);
}

int epoll_ctl(int epoll, int operation, int fd, epoll_event* event) {
  const cohort::EpollControl next = cohort::SystemEpollControl();
  if (!cohort::IsGuarded(fd)) return next(epoll, operation, fd, event);
  return cohort::ControlGuarded(next, epoll, operation, fd, event);
}

int getpeername(int fd, sockaddr* address, socklen_t* size) noexcept {
  static const auto next = reinterpret_cast<cohort::GetPeerName>(dlsym(RTLD_NEXT, "getpeername"));
  sockaddr_un name;
  if (!cohort::IsGuarded(fd) || !cohort::NamePeer(fd, &name)) return next(fd, address, size);
  const auto whole = static_cast<socklen_t>(sizeof(name));
  std::memcpy(address, &name, std::min(*size, whole));
  *size = whole;
  return 0;
}
}
