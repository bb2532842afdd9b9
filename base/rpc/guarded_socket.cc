#include "base/rpc/guarded_socket.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/mutex.h"
#include "base/unique_fd.h"

namespace cohort {
namespace {

// The state of one descriptor number. It is never freed, so a reader finds it without a lock.
struct Slot {
  std::atomic<uint64_t> cookie{0};  // 0: not guarded
  Mutex mutex;
  std::unique_ptr<Http2Guard> guard ABSL_GUARDED_BY(mutex);
  std::shared_ptr<GuardedSocket> socket ABSL_GUARDED_BY(mutex);
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
  Mute(slot);
}

// Tells the client why, if it still reads: a GOAWAY frame with ENHANCE_YOUR_CALM.
void SendGoAway(int fd, absl::string_view why) {
  constexpr size_t kMostText = 200;
  const std::string text(why.substr(0, kMostText));
  std::string frame = absl::StrCat(absl::string_view("\0\0", 2),
                                   std::string(1, static_cast<char>(text.size() + 8)),
                                   absl::string_view("\7\0\0\0\0\0\x7f\xff\xff\xff\0\0\0\x0b", 14),
                                   text);
  [[maybe_unused]] const ssize_t sent =
      send(fd, frame.data(), frame.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
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

// False: the connection has been shut down, and its bytes are not for gRPC to see.
bool SeeReceived(int fd, const msghdr& message, size_t count) {
  Slot& slot = *FindSlot(fd);
  std::shared_ptr<GuardedSocket> socket;
  absl::Status status;
  bool grew = false;
  {
    MutexLock lock(&slot.mutex);
    const uint64_t cookie = slot.cookie.load(std::memory_order_relaxed);
    // The number belongs to another socket by now.
    if (cookie == 0 || cookie != SocketCookie(fd)) return true;
    if (slot.guard == nullptr) return false;  // closed already
    socket = slot.socket;
    const bool suspect = socket->suspect->load(std::memory_order_relaxed);
    const Instant now = Clock::Steady().Now();
    ForEachPart(message, count, [&](absl::string_view part) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      status = slot.guard->OnReceived(part, now, suspect);
      return status.ok();
    });
    if (slot.guard->has_request()) socket->has_request.store(true, std::memory_order_relaxed);
    grew = slot.incoming.Set(slot.guard->unfinished_bytes());
    if (status.ok() && !grew) return true;
  }
  // This looks at other slots.
  if (status.ok()) status = socket->incoming->Check();
  if (status.ok()) return true;
  {
    MutexLock lock(&slot.mutex);
    if (slot.socket == socket) Mute(slot);
  }
  SendGoAway(fd, status.message());
  shutdown(fd, SHUT_RDWR);
  socket->on_offence(status);
  return false;
}

void SeeSent(int fd, const msghdr& message, size_t count) {
  Slot& slot = *FindSlot(fd);
  MutexLock lock(&slot.mutex);
  const uint64_t cookie = slot.cookie.load(std::memory_order_relaxed);
  if (cookie == 0 || slot.guard == nullptr || cookie != SocketCookie(fd)) return;
  ForEachPart(message, count, [&](absl::string_view part) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    slot.guard->OnSent(part);
    return true;
  });
  slot.incoming.Set(slot.guard->unfinished_bytes());
}

// The client has gone, so gRPC drops what came of its requests.
void SeeEnd(int fd) {
  Slot& slot = *FindSlot(fd);
  MutexLock lock(&slot.mutex);
  if (slot.cookie.load(std::memory_order_relaxed) == SocketCookie(fd)) slot.incoming.Set(0);
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
  slot->guard = std::make_unique<Http2Guard>(limits);
  slot->incoming = IncomingCharge(socket->incoming);
  slot->socket = std::move(socket);
  slot->cookie.store(SocketCookie(fd), std::memory_order_release);
}

void ForgetSocket(int fd, uint64_t cookie) {
  Slot* const slot = FindSlot(fd);
  if (slot == nullptr) return;
  MutexLock lock(&slot->mutex);
  if (slot->cookie.load(std::memory_order_relaxed) == cookie) Clear(*slot);
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

void ShutDownSocket(int fd, uint64_t cookie) {
  // A duplicate: the owner may close its descriptor at any time, and the number may be reused.
  const UniqueFd own(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (own.get() >= 0 && SocketCookie(own.get()) == cookie) shutdown(own.get(), SHUT_RDWR);
}

}  // namespace cohort

// In front of the C library's, for the whole program.
extern "C" {

ssize_t recvmsg(int fd, msghdr* message, int flags) {
  static const auto next = reinterpret_cast<ssize_t (*)(int, msghdr*, int)>(
      dlsym(RTLD_NEXT, "recvmsg"));
  const ssize_t count = next(fd, message, flags);
  if ((flags & MSG_PEEK) != 0 || !cohort::IsGuarded(fd)) return count;
  if (count <= 0) {
    const int error = errno;
    if (count == 0 || (error != EAGAIN && error != EINTR)) cohort::SeeEnd(fd);
    errno = error;
    return count;
  }
  if (cohort::SeeReceived(fd, *message, static_cast<size_t>(count))) return count;
  errno = ECONNRESET;
  return -1;
}

ssize_t sendmsg(int fd, const msghdr* message, int flags) {
  static const auto next = reinterpret_cast<ssize_t (*)(int, const msghdr*, int)>(
      dlsym(RTLD_NEXT, "sendmsg"));
  const ssize_t count = next(fd, message, flags);
  if (count > 0 && cohort::IsGuarded(fd)) {
    cohort::SeeSent(fd, *message, static_cast<size_t>(count));
  }
  return count;
}
}
