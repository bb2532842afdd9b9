#include "base/shm/local_socket.h"

#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/fork.h"
#include "base/peer_user.h"
#include "base/status_macros.h"
#include "base/threads/wait_hook.h"

namespace cohort::shm {
namespace {

absl::Status Failed(absl::StatusCode code, absl::string_view what) {
  return absl::Status(code, absl::ErrnoToStatus(errno, what).message());
}

bool IsPath(absl::string_view name) { return !name.empty() && name[0] == '/'; }

// A path stays as it is and ends with a zero. Another name, which no file has, begins with one.
socklen_t MakeAddress(absl::string_view name, sockaddr_un& address) {
  address = {};
  address.sun_family = AF_UNIX;
  const size_t size = std::min(name.size(), sizeof(address.sun_path) - 1);
  std::memcpy(address.sun_path + (IsPath(name) ? 0 : 1), name.data(), size);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + size);
}

// Opens a socket that listens at a name or path. Errors: `folder` words those of a path.
absl::StatusOr<UniqueFd> ListenAt(absl::string_view name, const HostFolder& folder) {
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (fd.get() < 0) return Failed(absl::StatusCode::kResourceExhausted, "socket");
  CloseInChildren(fd.get());
  // A file begins with these permissions, so no other user ever connects to it.
  fchmod(fd.get(), S_IRUSR | S_IWUSR);
  sockaddr_un address;
  const socklen_t size = MakeAddress(name, address);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return IsPath(name) ? folder.Failed("making a socket in it", errno)
                        : Failed(absl::StatusCode::kResourceExhausted, "binding");
  }
  if (listen(fd.get(), SOMAXCONN) != 0) {
    return Failed(absl::StatusCode::kResourceExhausted, "listening");
  }
  return fd;
}

absl::Status AwaitEvent(int fd, short event, Instant deadline, absl::string_view what) {
  HookedWait hooked;
  while (true) {
    int timeout = -1;
    if (deadline != absl::InfiniteFuture() || hooked.hooked()) {
      const absl::Duration left =
          hooked.Shorten(std::max(deadline - Clock::Steady().Now(), absl::ZeroDuration()));
      timeout = static_cast<int>(std::min<int64_t>(
          absl::ToInt64Milliseconds(absl::Ceil(left, absl::Milliseconds(1))), INT_MAX));
    }
    pollfd entry = {fd, event, 0};
    const int ready = poll(&entry, 1, timeout);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Failed(absl::StatusCode::kInternal, "poll");
    if (ready == 0 && Clock::Steady().Now() >= deadline) return absl::DeadlineExceededError(what);
    hooked.RunIfDue();
  }
}

}  // namespace

absl::StatusOr<LocalSocket> LocalSocket::Connect(absl::string_view name, Instant deadline) {
  if (IsPath(name) && name.size() >= sizeof(sockaddr_un::sun_path)) {
    return absl::UnavailableError(absl::StrCat("connecting to ", name, ": the path is too long"));
  }
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) return Failed(absl::StatusCode::kResourceExhausted, "socket");
  CloseInChildren(fd.get());
  // While the listener's queue is full, connecting blocks, for so long at most.
  const absl::Duration left = deadline - Clock::Steady().Now();
  if (left <= absl::ZeroDuration()) return absl::DeadlineExceededError("connecting");
  const timeval send_timeout = absl::ToTimeval(std::min(left, absl::Hours(1)));
  setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &send_timeout, sizeof(send_timeout));
  sockaddr_un address;
  const socklen_t size = MakeAddress(name, address);
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    if (errno == EAGAIN) return absl::DeadlineExceededError("connecting");
    return Failed(absl::StatusCode::kUnavailable,
                  IsPath(name) ? absl::StrCat("connecting to ", name) : "connecting");
  }
  LocalSocket connected(std::move(fd));
  // A user that may write to the folder can put a socket of its own there.
  if (const uid_t user = connected.peer().uid; IsPath(name) && !IsThisUser(user)) {
    return absl::UnavailableError(absl::StrCat("connecting to ", name, ": a process of ",
                                               NameOfUser(user), " listens there"));
  }
  return connected;
}

absl::Status LocalSocket::Send(absl::string_view bytes, absl::Span<const int> fds,
                               Instant deadline) const {
  if (bytes.empty() || bytes.size() > kMaxBytes || fds.size() > kMaxFds) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", bytes.size(), " bytes and ", fds.size(), " descriptors"));
  }
  iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
    std::memcpy(CMSG_DATA(header), fds.data(), fds.size() * sizeof(int));
  }
  while (sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Failed(absl::StatusCode::kUnavailable, "sending");
    absl::Status ready = AwaitEvent(fd_.get(), POLLOUT, deadline, "sending");
    if (!ready.ok()) return ready;
  }
  return absl::OkStatus();
}

absl::StatusOr<LocalSocket::Message> LocalSocket::Receive(Instant deadline) const {
  Message result;
  result.bytes.resize(kMaxBytes);
  iovec piece = {&result.bytes[0], result.bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFds * sizeof(int))];
  msghdr message = {};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  ssize_t size;
  while ((size = recvmsg(fd_.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT)) < 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) return Failed(absl::StatusCode::kUnavailable, "receiving");
    absl::Status ready = AwaitEvent(fd_.get(), POLLIN, deadline, "receiving");
    if (!ready.ok()) return ready;
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      result.fds.emplace_back(fd);
    }
  }
  if (size == 0) return absl::UnavailableError("the other side is gone");
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return absl::UnavailableError("the other side sent a message that is too long");
  }
  result.bytes.resize(static_cast<size_t>(size));
  return result;
}

LocalSocket::Peer LocalSocket::peer() const {
  ucred credentials = {};
  socklen_t size = sizeof(credentials);
  if (getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) return {};
  return {credentials.pid, credentials.uid};
}

LocalListener::File::~File() {
  // A forked child has a copy of this object, and the file is its parent's.
  if (getpid() == maker) unlink(path.c_str());
}

absl::StatusOr<LocalListener> LocalListener::Create(const HostFolder& folder) {
  std::string random(8, '\0');
  if (getrandom(&random[0], random.size(), 0) != static_cast<ssize_t>(random.size())) {
    return Failed(absl::StatusCode::kInternal, "getrandom");
  }
  LocalListener listener;
  listener.name_ = absl::StrCat(kSocketPrefix, absl::BytesToHexString(random));
  COHORT_ASSIGN_OR_RETURN(listener.fd_, ListenAt(listener.name_, folder));
  if (folder.empty()) return listener;
  const std::string path = absl::StrCat(folder.path(), "/", listener.name_);
  COHORT_ASSIGN_OR_RETURN(listener.in_folder_, ListenAt(path, folder));
  listener.file_.reset(new File{path, getpid()});
  listener.both_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event = {};
  event.events = EPOLLIN;
  for (const int fd : {listener.fd_.get(), listener.in_folder_.get()}) {
    if (epoll_ctl(listener.both_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return Failed(absl::StatusCode::kResourceExhausted, "epoll");
    }
  }
  folder.RemoveStale();
  return listener;
}

absl::StatusOr<LocalSocket> LocalListener::Accept(Instant deadline) const {
  while (true) {
    // The sockets take turns, so a flood at one of them does not keep the other one waiting.
    folder_first_ = !folder_first_;
    for (const bool in_folder : {folder_first_, !folder_first_}) {
      if (in_folder && file_ == nullptr) continue;
      UniqueFd fd(accept4((in_folder ? in_folder_ : fd_).get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (fd.get() >= 0) {
        CloseInChildren(fd.get());
        return LocalSocket(std::move(fd));
      }
      if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) {
        return Failed(absl::StatusCode::kResourceExhausted, "accepting");
      }
    }
    absl::Status ready = AwaitEvent(this->fd(), POLLIN, deadline, "accepting");
    if (!ready.ok()) return ready;
  }
}

void LocalListener::RejectAll() const {
  for (const int listener : {fd_.get(), in_folder_.get()}) {
    if (listener < 0) continue;
    shutdown(listener, SHUT_RDWR);
    while (UniqueFd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC)).get() >= 0) {
    }
  }
}

}  // namespace cohort::shm
