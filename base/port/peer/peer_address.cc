#include "base/port/peer/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cohort {

std::string PeerAddressOf(int fd) {
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return "unknown";
  char text[INET6_ADDRSTRLEN] = {};
  switch (peer.ss_family) {
    case AF_INET:
      inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(&peer)->sin_addr, text,
                sizeof(text));
      return text;
    case AF_INET6: {
      const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_addr;
      if (IN6_IS_ADDR_V4MAPPED(&address)) {
        inet_ntop(AF_INET, &address.s6_addr[12], text, sizeof(text));
      } else {
        inet_ntop(AF_INET6, &address, text, sizeof(text));
      }
      return text;
    }
    default: {
      ucred credentials = {};
      socklen_t credentials_size = sizeof(credentials);
      if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &credentials_size) != 0) {
        return "unknown";
      }
      return absl::StrCat("user ", credentials.uid);
    }
  }
}

std::string PeerAddressAndPortOf(int fd) {
  const std::string address = PeerAddressOf(fd);
  sockaddr_storage peer = {};
  socklen_t size = sizeof(peer);
  if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) != 0) return address;
  if (peer.ss_family == AF_INET) {
    const int port = ntohs(reinterpret_cast<const sockaddr_in*>(&peer)->sin_port);
    return absl::StrCat(address, ":", port);
  }
  if (peer.ss_family == AF_INET6) {
    const int port = ntohs(reinterpret_cast<const sockaddr_in6*>(&peer)->sin6_port);
    return absl::StrContains(address, ':') ? absl::StrCat("[", address, "]:", port)
                                           : absl::StrCat(address, ":", port);
  }
  return address;
}

std::string CountedAddress(const std::string& address) {
  constexpr size_t kNetworkBytes = 8;
  in6_addr parsed;
  if (inet_pton(AF_INET6, address.c_str(), &parsed) != 1 || IN6_IS_ADDR_LOOPBACK(&parsed) ||
      IN6_IS_ADDR_LINKLOCAL(&parsed)) {
    return address;
  }
  std::fill(parsed.s6_addr + kNetworkBytes, std::end(parsed.s6_addr), uint8_t{0});
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, &parsed, text, sizeof(text));
  return absl::StrCat(text, "/64");
}

bool IsLocal(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
  switch (address.ss_family) {
    case AF_UNIX:
      return true;
    case AF_INET:
      return ntohl(reinterpret_cast<const sockaddr_in&>(address).sin_addr.s_addr) >> 24 == 127;
    case AF_INET6: {
      const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
      return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
    }
    default:
      return false;
  }
}

}  // namespace cohort
