#include "worker/communicator/socket/mesh/rank_listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

constexpr int kMaxPort = 65535;

std::string Join(absl::string_view host, int port) {
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<SocketAddress> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(Join(host, port), ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, &freeaddrinfo);
  SocketAddress address;
  memcpy(&address.storage, all->ai_addr, all->ai_addrlen);
  address.size = all->ai_addrlen;
  return address;
}

int PortOf(int fd) {
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) return 0;
  return ntohs(bound.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&bound.storage)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&bound.storage)->sin_port);
}

}  // namespace

absl::StatusOr<SocketAddress> ResolveAddress(absl::string_view text) {
  const size_t colon = text.rfind(':');
  int port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(text.substr(colon + 1), &port) ||
      port <= 0 || port > kMaxPort) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not HOST:PORT"));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  if (host.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not HOST:PORT"));
  }
  return Resolve(std::string(host), port);
}

absl::StatusOr<Listener> Listener::Open(const std::string& host, int port) {
  COHORT_ASSIGN_OR_RETURN(const SocketAddress address, Resolve(host, port));
  const auto refuse = [&] {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", Join(host, port), ": ", strerror(errno)));
  };
  Listener listener;
  listener.fd_ =
      UniqueFd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener.fd_.is_open()) return refuse();
  // Takes over from connections that are still closing; never from a live listener.
  const int one = 1;
  setsockopt(listener.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(listener.fd(), address.get(), address.size) != 0) return refuse();
  if (listen(listener.fd(), SOMAXCONN) != 0) return refuse();
  listener.port_ = PortOf(listener.fd());
  listener.address_ = Join(host, listener.port_);
  return listener;
}

}  // namespace cohort::worker
