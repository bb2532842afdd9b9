#include "coordinator/service/tcpstore/tcpstore_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>

#include <utility>

#include "base/framed_rpc/keep_alive.h"
#include "base/port/socket/local_port.h"

namespace cohort::coordinator::tcpstore {

Server::Server(const ServerOptions& options, Dispatcher& dispatcher)
    : dispatcher_(dispatcher),
      jobs_(dispatcher.engine(), options.ports),
      loops_("tcpstore", options.threads) {}

void Server::Adopt(int fd, ListenerPeer peer) {
  framed_rpc::SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  loops_.Adopt(fd, peer.tls != nullptr, [&](EventLoop& loop, FairTurns& turns) {
    return std::make_shared<Connection>(fd, LocalPortOf(fd), loop, turns, dispatcher_, jobs_,
                                        std::move(peer));
  });
}

}  // namespace cohort::coordinator::tcpstore
