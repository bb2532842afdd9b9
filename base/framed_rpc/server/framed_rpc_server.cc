#include "base/framed_rpc/server/framed_rpc_server.h"

#include <algorithm>
#include <utility>

namespace cohort::framed_rpc {

Server::Server(const ServerOptions& options, std::vector<std::string> methods,
               std::shared_ptr<CallHandler> handler)
    : context_(std::make_shared<const ConnectionContext>(ConnectionContext{
          ServerProtocol(std::move(methods), static_cast<size_t>(options.max_message_bytes)),
          std::move(handler), static_cast<size_t>(std::max(0, options.max_concurrent_calls)),
          options.limits})),
      loops_("framed", options.threads) {}

void Server::Adopt(int fd, ListenerPeer peer) {
  loops_.Adopt(fd, peer.tls != nullptr, [&](EventLoop& loop, FairTurns& turns) {
    return std::make_shared<ServerConnection>(fd, context_, loop, turns, std::move(peer));
  });
}

}  // namespace cohort::framed_rpc
