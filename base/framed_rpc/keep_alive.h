// The TCP keepalive of framed RPC connections, which are idle for long times.
#ifndef COHORT_BASE_FRAMED_RPC_KEEP_ALIVE_H_
#define COHORT_BASE_FRAMED_RPC_KEEP_ALIVE_H_

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace cohort::framed_rpc {

inline void SetOption(int fd, int level, int option, int value) {
  setsockopt(fd, level, option, &value, sizeof(value));
}

// The death of the peer's machine is noticed within idle_s + probes * probe_s seconds. On Unix
// sockets, whose peers cannot vanish unnoticed, this fails without harm.
inline void SetKeepAlive(int fd, int idle_s, int probe_s, int probes) {
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle_s);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, probe_s);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, probes);
}

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_KEEP_ALIVE_H_
