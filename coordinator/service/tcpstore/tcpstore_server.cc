#include "coordinator/service/tcpstore/tcpstore_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <utility>

#include "base/framed_rpc/keep_alive.h"

namespace cohort::coordinator::tcpstore {
namespace {

int LocalPortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  if (address.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
  }
  if (address.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port);
  }
  return 0;
}

}  // namespace

Server::Server(const ServerOptions& options, Dispatcher& dispatcher)
    : dispatcher_(dispatcher),
      jobs_(dispatcher.engine(), options.ports),
      loops_("tcpstore", options.threads) {}

void Server::Adopt(int fd, ListenerPeer peer) {
  framed_rpc::SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  loops_.Adopt(fd, [&](EventLoop& loop) {
    return std::make_shared<Connection>(fd, LocalPortOf(fd), loop, dispatcher_, jobs_,
                                        std::move(peer));
  });
}

}  // namespace cohort::coordinator::tcpstore
