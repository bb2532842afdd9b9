#include "client/parallel/queue/connections/stream_server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/port/listener.h"
#include "base/port/socket/listen_address.h"
#include "base/port/socket/listen_socket.h"
#include "base/rpc/grpc_deadline.h"
#include "base/rpc/rank_network.h"
#include "base/status_macros.h"
#include "base/tls/tls_context.h"
#include "client/parallel/queue/connections/writer_stream.h"
#include "cohort/v1/queue.grpc.pb.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace cohort::parallel {
namespace {

// After both, a host that vanished is noticed.
constexpr int kPingMs = 20000;
constexpr int kPingTimeoutMs = 10000;
// A reader that pings more often than this, without data, is disconnected.
constexpr int kMinPingIntervalMs = 5000;
constexpr int kMostRequestBytes = 4096;
// A reader that has not finished its TLS handshake by then is disconnected.
constexpr int kHandshakeMs = 5000;
// The time in which cancelled streams end.
constexpr absl::Duration kLastGrace = absl::Seconds(2);

// This host's addresses for others, IPv4 first, then its local ones.
std::vector<std::string> HostAddresses() {
  std::vector<std::string> near, v4, v6;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {"127.0.0.1"};
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const bool loopback = (entry->ifa_flags & IFF_LOOPBACK) != 0;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* const address = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      inet_ntop(AF_INET, &address->sin_addr, text, sizeof(text));
      (loopback ? near : v4).push_back(text);
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* const address = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      if (IN6_IS_ADDR_LINKLOCAL(&address->sin6_addr)) continue;
      inet_ntop(AF_INET6, &address->sin6_addr, text, sizeof(text));
      (loopback ? near : v6).push_back(text);
    }
  }
  freeifaddrs(all);
  v4.insert(v4.end(), v6.begin(), v6.end());
  v4.insert(v4.end(), near.begin(), near.end());
  return v4;
}

// Port 0 stands for the ports of COHORT_PORT_RANGE, if that is set.
absl::StatusOr<std::vector<ListenSocket>> OpenInRange(ListenAddress address) {
  if (address.is_unix() || address.port != 0) return ListenSocket::Open(address);
  COHORT_ASSIGN_OR_RETURN(const std::vector<int> ports, ListenPortsOfEnvironment());
  absl::Status last;
  for (const int port : ports) {
    address.port = port;
    absl::StatusOr<std::vector<ListenSocket>> sockets = ListenSocket::Open(address);
    if (sockets.ok()) return sockets;
    last = sockets.status();
    if (!absl::StrContains(last.message(), strerror(EADDRINUSE))) return last;
  }
  return ports.front() != 0 ? NoPortOfRangeIsFree(address.host) : last;
}

// Opens sockets on all addresses; on a machine without IPv6, on all IPv4 addresses.
absl::StatusOr<std::vector<ListenSocket>> OpenSockets(const std::string& listen) {
  if (!listen.empty()) {
    COHORT_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(listen));
    return OpenInRange(std::move(address));
  }
  absl::Status last;
  for (const char* everywhere : {"[::]:0", "0.0.0.0:0"}) {
    COHORT_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(everywhere));
    absl::StatusOr<std::vector<ListenSocket>> sockets = OpenInRange(std::move(address));
    if (sockets.ok()) return sockets;
    last = sockets.status();
  }
  return last;
}

class Service final
    : public v1::QueueService::WithRawCallbackMethod_Read<v1::QueueService::Service> {
 public:
  Service(std::shared_ptr<RingWriter> writer, const v1::QueueHandle& handle,
          absl::Duration hello_timeout)
      : writer_(std::move(writer)), handle_(handle), hello_timeout_(hello_timeout) {}

  WriterStream::Reactor* Read(grpc::CallbackServerContext* context) override {
    return WriterStream::Start(writer_, handle_, count_, hello_timeout_, context);
  }
  StreamCount& count() { return *count_; }

 private:
  const std::shared_ptr<RingWriter> writer_;
  const v1::QueueHandle handle_;
  const absl::Duration hello_timeout_;
  const std::shared_ptr<StreamCount> count_ = std::make_shared<StreamCount>();
};

}  // namespace

struct StreamServer::Impl {
  Impl(std::shared_ptr<RingWriter> writer, const v1::QueueHandle& handle,
       absl::Duration hello_timeout)
      : service(std::move(writer), handle, hello_timeout) {}

  Service service;
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
  std::unique_ptr<::cohort::Listener> listener;
};

StreamServer::StreamServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<StreamServer>> StreamServer::Start(
    const StreamServerOptions& options, std::shared_ptr<RingWriter> writer,
    const v1::QueueHandle& handle) {
  std::string advertise = options.advertise;
  if (advertise.empty()) {
    COHORT_ASSIGN_OR_RETURN(AdvertisedHost chosen, AdvertisedHostOfEnvironment());
    advertise = std::move(chosen.host);
  }
  COHORT_ASSIGN_OR_RETURN(std::vector<ListenSocket> sockets, OpenSockets(options.listen));
  const int port = sockets.front().port();
  if (port == 0) return absl::InvalidArgumentError("queues listen at ports, not at paths");

  ListenerOptions listener;
  if (options.tls.state == TlsState::kOn) {
    COHORT_ASSIGN_OR_RETURN(listener.tls, TlsContext::Load(options.tls.files, TlsSide::kServer));
    listener.plain = listener.plain_local = false;
  }
  auto impl = std::make_unique<Impl>(std::move(writer), handle, options.hello_timeout);
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(kMostRequestBytes);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  // This server accepts connections and hands them to gRPC, so it binds exactly the given address.
  impl->acceptor = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.RegisterService(&impl->service);
  impl->server = builder.BuildAndStart();
  if (impl->server == nullptr) return absl::InternalError("gRPC's server did not start");
  ListenerSinks sinks;
  sinks.grpc = [acceptor = impl->acceptor.get()](int fd, int /*port*/) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  impl->listener = std::make_unique<::cohort::Listener>(std::move(sockets), std::move(sinks),
                                                        std::move(listener));
  COHORT_RETURN_IF_ERROR(impl->listener->status());

  auto result = absl::WrapUnique(new StreamServer(std::move(impl)));
  result->port_ = port;
  if (!advertise.empty()) {
    result->addresses_.push_back(HostAndPort(advertise, port));
    return result;
  }
  std::vector<std::string> hosts = HostAddresses();
  if (!options.listen.empty()) {
    COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(options.listen));
    if (!address.host.empty() && address.host != "0.0.0.0" && address.host != "::") {
      hosts = {address.host};
    }
  }
  for (const std::string& host : hosts) result->addresses_.push_back(HostAndPort(host, port));
  return result;
}

void StreamServer::Finish(absl::Duration linger) { impl_->service.count().AwaitNoReaders(linger); }

StreamServer::~StreamServer() {
  impl_->listener.reset();
  impl_->server->Shutdown(GrpcDeadline(absl::ZeroDuration()));
  impl_->service.count().AwaitNone(kLastGrace);
  impl_->server->Wait();
}

}  // namespace cohort::parallel
