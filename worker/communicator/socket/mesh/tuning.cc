#include "worker/communicator/socket/mesh/tuning.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include <algorithm>

namespace cohort::worker {
namespace {

// The buffers of stream 0 have room for all bytes that may be on the way in it.
constexpr int kFrameBufferBytes = 512 << 10;
constexpr int kProbeS = 3;
// The congestion control that every system has, and that never delays data for a steady rate.
constexpr char kUnpaced[] = "reno";

void Set(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

// Whether both ends are on this host.
bool StaysHere(int fd) {
  sockaddr_storage own = {};
  sockaddr_storage other = {};
  socklen_t own_size = sizeof(own);
  socklen_t other_size = sizeof(other);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) != 0 ||
      getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_size) != 0) {
    return false;
  }
  if (own.ss_family != other.ss_family) return false;
  if (own.ss_family == AF_INET6) {
    return memcmp(&reinterpret_cast<const sockaddr_in6*>(&own)->sin6_addr,
                  &reinterpret_cast<const sockaddr_in6*>(&other)->sin6_addr, sizeof(in6_addr)) == 0;
  }
  return reinterpret_cast<const sockaddr_in*>(&own)->sin_addr.s_addr ==
         reinterpret_cast<const sockaddr_in*>(&other)->sin_addr.s_addr;
}

}  // namespace

void TuneConnection(int fd, int stream, absl::Duration link_timeout) {
  Set(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  Set(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  Set(fd, IPPROTO_TCP, TCP_KEEPIDLE, kProbeS);
  Set(fd, IPPROTO_TCP, TCP_KEEPINTVL, kProbeS);
  const int timeout_s = std::max(1, static_cast<int>(absl::ToInt64Seconds(link_timeout)));
  Set(fd, IPPROTO_TCP, TCP_KEEPCNT, std::max(1, timeout_s / kProbeS));
  if (StaysHere(fd)) setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, kUnpaced, sizeof(kUnpaced) - 1);
  if (stream > 0) return;  // whose buffers the system sizes by what the path needs
  // The other streams have no such timeout: data may lie unread there until a deadline.
  Set(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_s * 1000);
  Set(fd, SOL_SOCKET, SO_SNDBUF, kFrameBufferBytes);
  Set(fd, SOL_SOCKET, SO_RCVBUF, kFrameBufferBytes);
}

}  // namespace cohort::worker
