#include "worker/communicator/socket/mesh/rank_listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/rpc/rank_network.h"
#include "base/status_macros.h"

namespace cohort::worker {
namespace {

constexpr int kMaxPort = 65535;

std::string Join(absl::string_view host, int port) {
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::UnavailableError(absl::StrCat(Join(host, port), ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> all(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    memcpy(&address.storage, one->ai_addr, one->ai_addrlen);
    address.size = one->ai_addrlen;
  }
  return addresses;
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

bool IsLoopback(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(address.storage);
    return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
  }
  if (address.storage.ss_family != AF_INET6) return false;
  const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address.storage).sin6_addr;
  return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

absl::StatusOr<std::vector<SocketAddress>> ResolveAddresses(absl::string_view text) {
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

namespace {

// Returns a closed descriptor, with the reason in errno, if it cannot listen there.
UniqueFd ListenAt(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return fd;
  // Takes over from connections that are still closing; never from a live listener.
  const int one = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  if (bind(fd.get(), address.get(), address.size) == 0 && listen(fd.get(), SOMAXCONN) == 0) {
    return fd;
  }
  const int error = errno;
  fd = UniqueFd();
  errno = error;
  return fd;
}

}  // namespace

absl::StatusOr<Listener> Listener::Open(const std::string& host, int port) {
  std::vector<int> ports = {port};
  if (port == 0) {
    COHORT_ASSIGN_OR_RETURN(ports, ListenPortsOfEnvironment());
  }
  int error = 0;
  for (const int each : ports) {
    COHORT_ASSIGN_OR_RETURN(std::vector<SocketAddress> addresses, Resolve(host, each));
    std::stable_partition(addresses.begin(), addresses.end(),
                          [](const SocketAddress& address) { return !IsLoopback(address); });
    for (const SocketAddress& address : addresses) {
      Listener listener;
      listener.fd_ = ListenAt(address);
      if (listener.fd_.is_open()) {
        listener.is_loopback_ = IsLoopback(address);
        listener.port_ = PortOf(listener.fd());
        listener.address_ = Join(host, listener.port_);
        return listener;
      }
      error = errno;
      // The next port is free perhaps, the next address is another one.
      if (error == EADDRINUSE) break;
    }
    if (error != EADDRINUSE) break;
  }
  if (error == EADDRINUSE && port == 0 && ports.front() != 0) return NoPortOfRangeIsFree(host);
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", Join(host, port), ": ", strerror(error)));
}

}  // namespace cohort::worker
