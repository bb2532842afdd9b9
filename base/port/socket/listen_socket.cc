#include "base/port/socket/listen_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort {
namespace {

constexpr int kSocketFlags = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;

absl::Status CannotListen(const ListenAddress& address, absl::string_view why) {
  return absl::UnavailableError(absl::StrCat("cannot listen on ", address.text, ": ", why));
}

absl::Status CannotListen(const ListenAddress& address) {
  return CannotListen(address, strerror(errno));
}

void Set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

int PortOf(int fd) {
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<sockaddr_in*>(&bound)->sin_port);
}

// Whether a server lives behind the file.
bool Answers(const sockaddr_un& name) {
  const int fd = socket(AF_UNIX, kSocketFlags, 0);
  if (fd < 0) return false;
  // Another error, such as EACCES, comes from a socket that is in use.
  const bool answers = connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) == 0 ||
                       (errno != ECONNREFUSED && errno != ENOENT);
  close(fd);
  return answers;
}

}  // namespace

ListenSocket::ListenSocket(ListenSocket&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      port_(other.port_),
      path_(std::exchange(other.path_, std::string())) {}

ListenSocket::~ListenSocket() {
  if (!path_.empty()) unlink(path_.c_str());
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<ListenSocket> ListenSocket::OpenUnix(const ListenAddress& address, mode_t mode) {
  sockaddr_un name = {};
  name.sun_family = AF_UNIX;
  address.path.copy(name.sun_path, sizeof(name.sun_path) - 1);
  struct stat file;
  if (lstat(address.path.c_str(), &file) == 0) {
    if (!S_ISSOCK(file.st_mode)) return CannotListen(address, "the file is not a socket");
    if (Answers(name)) return CannotListen(address, "another server listens there");
    unlink(address.path.c_str());
  }
  ListenSocket result(socket(AF_UNIX, kSocketFlags, 0));
  // The file is never more open than `mode`: it gets the mode of the socket at first.
  if (result.fd_ < 0 || fchmod(result.fd_, mode) != 0 ||
      bind(result.fd_, reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0) {
    return CannotListen(address);
  }
  result.path_ = address.path;
  // The umask took bits away.
  if (chmod(address.path.c_str(), mode) != 0) return CannotListen(address);
  if (listen(result.fd_, SOMAXCONN) != 0) return CannotListen(address);
  return result;
}

absl::StatusOr<std::vector<ListenSocket>> ListenSocket::Open(const ListenAddress& address,
                                                             mode_t unix_mode) {
  std::vector<ListenSocket> sockets;
  if (address.is_unix()) {
    COHORT_ASSIGN_OR_RETURN(ListenSocket socket, OpenUnix(address, unix_mode));
    sockets.push_back(std::move(socket));
    return sockets;
  }
  if (address.fd >= 0) {
    // The connections that wait in its queue stay there.
    ListenSocket inherited(address.fd);
    inherited.port_ = address.port;
    if (fcntl(address.fd, F_SETFD, FD_CLOEXEC) != 0 ||
        fcntl(address.fd, F_SETFL, O_NONBLOCK) != 0) {
      return CannotListen(address);
    }
    Set(address.fd, IPPROTO_TCP, TCP_NODELAY, 1);  // accepted sockets inherit it
    sockets.push_back(std::move(inherited));
    return sockets;
  }
  addrinfo hints = {};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) return CannotListen(address, gai_strerror(error));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, &freeaddrinfo);

  int port = address.port;
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    ListenSocket result(socket(one->ai_family, kSocketFlags, 0));
    // A machine without IPv6 still has a localhost.
    if (result.fd_ < 0 && errno == EAFNOSUPPORT) continue;
    if (result.fd_ < 0) return CannotListen(address);
    // A restarted server can listen while connections of the old one are still closing, but not
    // while the old one listens.
    Set(result.fd_, SOL_SOCKET, SO_REUSEADDR, 1);
    Set(result.fd_, IPPROTO_TCP, TCP_NODELAY, 1);  // accepted sockets inherit it
    // The second address of a name gets the port that the first was given.
    if (one->ai_family == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(one->ai_addr)->sin6_port = htons(port);
    } else {
      reinterpret_cast<sockaddr_in*>(one->ai_addr)->sin_port = htons(port);
    }
    if (bind(result.fd_, one->ai_addr, one->ai_addrlen) != 0) {
      if (errno == EADDRNOTAVAIL && !sockets.empty()) continue;
      return CannotListen(address);
    }
    if (listen(result.fd_, SOMAXCONN) != 0) return CannotListen(address);
    port = result.port_ = PortOf(result.fd_);
    sockets.push_back(std::move(result));
  }
  if (sockets.empty()) return CannotListen(address, "no such address here");
  return sockets;
}

bool ConnectionWaits(int listening_fd) {
  pollfd waits = {listening_fd, POLLIN, 0};
  return poll(&waits, 1, 0) > 0;
}

}  // namespace cohort
