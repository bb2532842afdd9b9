#include "base/port/socket/listen_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace cohort {
namespace {

// sun_path holds 108 bytes, the final NUL included.
constexpr size_t kMaxPathBytes = 107;

absl::Status Malformed(absl::string_view text, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("listen address \"", text, "\": ", why));
}

// The numbers of an open socket.
int OptionOf(int fd, int option) {
  int value = 0;
  socklen_t size = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : 0;
}

absl::StatusOr<ListenAddress> ParseInherited(absl::string_view text, absl::string_view number) {
  ListenAddress address;
  address.text = std::string(text);
  if (!absl::SimpleAtoi(number, &address.fd) || address.fd < 0) {
    return Malformed(text, "needs the number of a file descriptor, such as fd://3");
  }
  sockaddr_storage bound = {};
  socklen_t size = sizeof(bound);
  if (getsockname(address.fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) {
    return Malformed(text, absl::StrCat("descriptor ", address.fd, ": ", strerror(errno)));
  }
  const bool is_v4 = bound.ss_family == AF_INET;
  if (!is_v4 && bound.ss_family != AF_INET6) {
    return Malformed(text, "the descriptor is no TCP socket");
  }
  if (OptionOf(address.fd, SO_TYPE) != SOCK_STREAM || OptionOf(address.fd, SO_ACCEPTCONN) == 0) {
    return Malformed(text, "the socket does not listen: call listen() on it first");
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(bound);
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(bound);
  char host[INET6_ADDRSTRLEN] = {};
  const void* const bytes = is_v4 ? static_cast<const void*>(&v4.sin_addr) : &v6.sin6_addr;
  inet_ntop(bound.ss_family, bytes, host, sizeof(host));
  address.host = host;
  address.port = ntohs(is_v4 ? v4.sin_port : v6.sin6_port);
  return address;
}

}  // namespace

bool ListenAddress::is_loopback() const {
  if (is_unix() || host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string ListenAddress::WithPort(int bound_port) const {
  return is_unix() ? text : HostAndPort(host, bound_port);
}

std::string HostAndPort(absl::string_view host, int port) {
  const bool plain = !absl::StrContains(host, ':') || absl::StartsWith(host, "[");
  return plain ? absl::StrCat(host, ":", port) : absl::StrCat("[", host, "]:", port);
}

AddressAndProtocols SplitProtocols(absl::string_view text) {
  if (absl::StartsWith(text, "unix:")) return {std::string(text), {}};
  std::vector<std::string> words = absl::StrSplit(text, ',');
  AddressAndProtocols split{std::move(words.front()), {}};
  words.erase(words.begin());
  split.protocols = std::move(words);
  return split;
}

absl::StatusOr<ListenAddress> ParseListenAddress(absl::string_view text) {
  ListenAddress address;
  address.text = std::string(text);
  if (absl::StartsWith(text, "unix:")) {
    address.path = std::string(absl::StripPrefix(text, "unix:"));
    if (!absl::StartsWith(address.path, "/")) return Malformed(text, "unix: needs a full path");
    if (address.path.size() > kMaxPathBytes) return Malformed(text, "the path is too long");
    return address;
  }
  if (absl::StartsWith(text, "fd://")) {
    return ParseInherited(text, absl::StripPrefix(text, "fd://"));
  }
  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return Malformed(text, "needs host:port");
  absl::string_view host = text.substr(0, colon);
  if (absl::StartsWith(host, "[")) {
    if (!absl::EndsWith(host, "]")) return Malformed(text, "has no closing bracket");
    host = host.substr(1, host.size() - 2);
    in6_addr v6;
    const std::string plain(host.substr(0, host.find('%')));
    if (inet_pton(AF_INET6, plain.c_str(), &v6) != 1) return Malformed(text, "is not IPv6");
  } else if (absl::StrContains(host, ':')) {
    return Malformed(text, "an IPv6 address needs brackets: [::1]:7700");
  }
  if (host.empty()) return Malformed(text, "has no host; for all, write 0.0.0.0 or [::]");
  const absl::string_view port = text.substr(colon + 1);
  if (!absl::SimpleAtoi(port, &address.port) || address.port < 0 || address.port > 65535) {
    return Malformed(text, "the port must be from 0 to 65535");
  }
  address.host = std::string(host);
  return address;
}

}  // namespace cohort
