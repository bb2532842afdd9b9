#include "tests/benchmark/collective/processes/control_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::benchmark {
namespace {

constexpr int kBacklog = 64;
constexpr size_t kMaxText = 4096;

absl::StatusOr<sockaddr_un> AddressOf(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("too long for a socket: ", path));
  }
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

absl::StatusOr<int> NewSocket() {
  const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, "socket");
  return fd;
}

}  // namespace

absl::StatusOr<ControlSocket> ControlSocket::Connect(const std::string& path) {
  const absl::StatusOr<sockaddr_un> address = AddressOf(path);
  if (!address.ok()) return address.status();
  const absl::StatusOr<int> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  ControlSocket result(*fd);
  if (connect(*fd, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot connect to ", path));
  }
  return result;
}

ControlSocket& ControlSocket::operator=(ControlSocket&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

ControlSocket::~ControlSocket() {
  if (fd_ >= 0) close(fd_);
}

absl::Status ControlSocket::Send(absl::string_view text) {
  ssize_t sent;
  do {
    sent = send(fd_, text.data(), text.size(), MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent < 0) return absl::UnavailableError(absl::StrCat("send: ", std::strerror(errno)));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ControlSocket::Receive() {
  std::string text(kMaxText, '\0');
  ssize_t received;
  do {
    received = recv(fd_, text.data(), text.size(), 0);
  } while (received < 0 && errno == EINTR);
  if (received <= 0) return absl::UnavailableError("the other side is gone");
  text.resize(received);
  return text;
}

absl::StatusOr<pid_t> ControlSocket::PeerPid() const {
  ucred peer = {};
  socklen_t size = sizeof(peer);
  if (getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return absl::ErrnoToStatus(errno, "SO_PEERCRED");
  }
  return peer.pid;
}

absl::StatusOr<ControlListener> ControlListener::Listen(const std::string& path) {
  const absl::StatusOr<sockaddr_un> address = AddressOf(path);
  if (!address.ok()) return address.status();
  const absl::StatusOr<int> fd = NewSocket();
  if (!fd.ok()) return fd.status();
  ControlListener result(*fd, path);
  if (bind(*fd, reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0 ||
      listen(*fd, kBacklog) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot listen at ", path));
  }
  return result;
}

ControlListener& ControlListener::operator=(ControlListener&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

ControlListener::~ControlListener() {
  if (fd_ < 0) return;
  close(fd_);
  unlink(path_.c_str());
}

absl::StatusOr<ControlSocket> ControlListener::Accept() {
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "accept");
  return ControlSocket(fd);
}

}  // namespace cohort::benchmark
