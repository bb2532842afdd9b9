#include "coordinator/service/rpc_server.h"

#include <unistd.h>

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/framed_rpc_server.h"
#include "base/port/limits/tenant_rates.h"
#include "base/port/listener.h"
#include "base/port/socket/listen_address.h"
#include "base/port/socket/local_port.h"
#include "base/rpc/grpc_deadline.h"
#include "base/rpc/reflection.h"
#include "base/status_macros.h"
#include "coordinator/service/framed_rpc/framed_rpc_handler.h"
#include "coordinator/service/grpc/grpc_service.h"
#include "coordinator/service/tcpstore/tcpstore_request.h"
#include "coordinator/service/tcpstore/tcpstore_server.h"
#include "coordinator/service/torchft/lighthouse_service.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace cohort::coordinator {
namespace {

constexpr const char* kServiceNames[] = {
    "cohort.v1.GroupService",    "cohort.v1.MessagingService", "cohort.v1.StoreService",
    "cohort.v1.UniqueIdService", "cohort.v1.AdminService",
};
// A client that pings more often than this, without data, is sent away.
constexpr int kMinPingIntervalMs = 10000;
// A client whose settings have not come by then is sent away.
constexpr int kHandshakeMs = 10000;
// A call that is parked costs gRPC 13 KB and framed RPC 0.3.
constexpr int kFramedCallsPerStream = 16;
int FramedRate(int http2_rate) {
  return static_cast<int>(std::min<int64_t>(int64_t{http2_rate} * kFramedCallsPerStream,
                                            std::numeric_limits<int>::max()));
}
// The time for gRPC's own streams (health watches) after the coordinator's streams have ended.
constexpr absl::Duration kLastGrace = absl::Milliseconds(200);
constexpr absl::Duration kLastAnswers = absl::Seconds(30);

void Configure(const RpcServerOptions& options, grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  // Answers have their own bounds; the limit of the reader is the client's to set.
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Tells clients that no message may be compressed (http2_guard.cc).
  builder.AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                             1 << GRPC_COMPRESS_NONE);
  const int max_streams = options.listener.http2.max_concurrent_streams;
  if (max_streams > 0) builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, max_streams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  if (options.listener.tls != nullptr &&
      options.listener.max_connection_age > absl::ZeroDuration()) {
    // Clients of gRPC hear early that their connection will end, and begin calls on a new one.
    builder.AddChannelArgument(
        GRPC_ARG_MAX_CONNECTION_AGE_MS,
        static_cast<int>(absl::ToInt64Milliseconds(options.listener.max_connection_age * 0.8)));
  }
  if (options.ping_timeout > absl::ZeroDuration()) {
    // An attached stream counts as a sign of life: the connection of a dead peer must end.
    const int timeout = std::max<int>(absl::ToInt64Milliseconds(options.ping_timeout), 2);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, timeout / 2);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, timeout);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  }
}

// The ports that serve each protocol; 0 stands for Unix sockets.
struct Ports {
  std::set<int> all;
  std::set<int> rpc;
  std::set<int> tcpstore;
  std::set<int> torchft;
};

// Adds the port of an address. `with_tls`: the server has a certificate.
void AddPort(int port, const std::vector<std::string>& protocols, bool with_tls, Ports* ports) {
  const auto serves = [&](const char* protocol, bool usual) {
    return protocols.empty() ? usual : absl::c_linear_search(protocols, protocol);
  };
  ports->all.insert(port);
  if (serves(kRpc, true)) ports->rpc.insert(port);
  if (serves(kTcpStore, !with_tls && port != 0)) ports->tcpstore.insert(port);
  if (serves(kTorchft, !with_tls)) ports->torchft.insert(port);
}

// gRPC's server for the connections of one port. gRPC does not tell a service on which port a call
// came, and a port is a job of torchft.
struct PortServer {
  std::deque<GrpcService> services;
  // After the services: these go first, the last one first.
  std::unique_ptr<grpc::Server> server;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
};

}  // namespace

struct RpcServer::Impl {
  explicit Impl(Dispatcher& shared) : dispatcher(shared) {}

  absl::Status StartGrpc(const RpcServerOptions& options, const Ports& ports);

  void Accept(std::vector<ListenSocket> sockets, const Ports& ports, ListenerOptions options) {
    ListenerSinks sinks;
    if (framed_rpc_server != nullptr) {
      sinks.protocols.push_back(
          {[](absl::string_view first) { return MatchPreface(first, framed_rpc::kPreface); },
           [this](int fd, ListenerPeer peer) { framed_rpc_server->Adopt(fd, std::move(peer)); },
           /*notes_requests=*/true,
           {ports.rpc.begin(), ports.rpc.end()}});
    }
    if (tcpstore_server != nullptr) {
      sinks.protocols.push_back(
          {tcpstore::MatchTcpStore,
           [this](int fd, ListenerPeer peer) { tcpstore_server->Adopt(fd, std::move(peer)); },
           /*notes_requests=*/false,
           {ports.tcpstore.begin(), ports.tcpstore.end()}});
    }
    sinks.grpc = [this](int fd, int port) {
      const auto server = port_servers.find(port);
      if (server == port_servers.end()) {  // no gRPC here, or the client's socket has failed
        close(fd);
        return;
      }
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
      connection.fd = fd;
      server->second.acceptor->HandleNewConnection(&connection);
    };
    listener = std::make_unique<Listener>(std::move(sockets), std::move(sinks), std::move(options));
  }

  Dispatcher& dispatcher;
  std::unique_ptr<torchft::LighthouseServices> lighthouses;
  std::map<int, PortServer> port_servers;
  std::unique_ptr<framed_rpc::Server> framed_rpc_server;
  std::unique_ptr<tcpstore::Server> tcpstore_server;
  std::unique_ptr<Listener> listener;
  bool stopped = false;
};

absl::Status RpcServer::Impl::StartGrpc(const RpcServerOptions& options, const Ports& ports) {
  if (options.torchft.min_replicas > 0 && !ports.torchft.empty()) {
    lighthouses = std::make_unique<torchft::LighthouseServices>(
        options.torchft, std::vector<int>(ports.torchft.begin(), ports.torchft.end()), dispatcher);
    COHORT_RETURN_IF_ERROR(lighthouses->Start());
  }
  for (const int port : ports.all) {
    const bool has_rpc = ports.rpc.count(port) > 0;
    const bool has_torchft = lighthouses != nullptr && ports.torchft.count(port) > 0;
    // gRPC has no server without a service.
    if (!has_rpc && !has_torchft) continue;
    PortServer& started = port_servers[port];
    if (has_rpc) {
      for (const char* name : kServiceNames) started.services.emplace_back(name, dispatcher);
    }
    grpc::ServerBuilder builder;
    Configure(options, builder);
    // The listener accepts connections and gives gRPC's to gRPC.
    started.acceptor = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        grpc::InsecureServerCredentials());
    for (GrpcService& service : started.services) builder.RegisterService(&service);
    if (has_torchft) builder.RegisterService(lighthouses->OfPort(port));
    started.server = builder.BuildAndStart();
    if (started.server == nullptr) return absl::InternalError("gRPC's server did not start");
  }
  return absl::OkStatus();
}

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            Dispatcher& dispatcher) {
  if (options.listen.empty()) return absl::InvalidArgumentError("no address to listen on");
  // Before the rest: a server that cannot listen has done nothing.
  std::vector<ListenSocket> sockets;
  std::vector<std::string> addresses;
  Ports ports;
  for (const std::string& text : options.listen) {
    const AddressAndProtocols split = SplitProtocols(text);
    COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(split.address));
    COHORT_ASSIGN_OR_RETURN(std::vector<ListenSocket> opened,
                            ListenSocket::Open(address, options.unix_socket_mode));
    const int port = address.is_unix() ? 0 : opened.front().port();
    AddPort(port, split.protocols, options.listener.tls != nullptr, &ports);
    addresses.push_back(address.WithPort(opened.front().port()));
    std::move(opened.begin(), opened.end(), std::back_inserter(sockets));
  }
  // Switches of the whole process; setting them again is harmless.
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) COHORT_RETURN_IF_ERROR(EnableReflection());

  auto impl = std::make_unique<Impl>(dispatcher);
  COHORT_RETURN_IF_ERROR(impl->StartGrpc(options, ports));
  if (options.framed_rpc_threads > 0 && !ports.rpc.empty()) {
    framed_rpc::ServerOptions framed;
    framed.threads = options.framed_rpc_threads;
    framed.max_message_bytes = options.max_message_bytes;
    const Http2Limits& http2 = options.listener.http2;
    framed.max_concurrent_calls = http2.max_concurrent_streams * kFramedCallsPerStream;
    framed.limits.max_resets_per_second = FramedRate(http2.max_resets_per_second);
    framed.limits.max_idle_frames_per_second = FramedRate(http2.max_idle_frames_per_second);
    auto handler = std::make_shared<FramedRpcHandler>(dispatcher, options.ping_timeout);
    std::vector<std::string> methods = handler->MethodNames();
    impl->framed_rpc_server =
        std::make_unique<framed_rpc::Server>(framed, std::move(methods), std::move(handler));
  }
  if (options.tcpstore_threads > 0 && !ports.tcpstore.empty()) {
    tcpstore::ServerOptions tcpstore;
    tcpstore.threads = options.tcpstore_threads;
    tcpstore.ports.assign(ports.tcpstore.begin(), ports.tcpstore.end());
    impl->tcpstore_server = std::make_unique<tcpstore::Server>(tcpstore, dispatcher);
  }

  std::unique_ptr<RpcServer> server(new RpcServer(std::move(impl)));
  server->addresses_ = std::move(addresses);
  ListenerOptions listener = options.listener;
  listener.on_incoming_bytes = [account = dispatcher.engine().shared_account()](int64_t more) {
    account->Add(MemoryKind::kRequests, more);
  };
  if (dispatcher.checks_access()) {
    listener.rates = dispatcher.rates();
    listener.max_streams_per_second =
        std::max<int64_t>(dispatcher.engine().limits().max_tenant_requests_per_second /
                              TenantRates::kGrpcRequest, 1);
  }
  server->impl_->Accept(std::move(sockets), ports, std::move(listener));
  COHORT_RETURN_IF_ERROR(server->impl_->listener->status());
  server->SetServing(true);
  return server;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(bool serving) {
  for (const auto& [port, started] : impl_->port_servers) {
    grpc::HealthCheckServiceInterface* const health = started.server->GetHealthCheckService();
    if (health == nullptr) continue;
    health->SetServingStatus("", serving);  // the server as a whole
    for (const char* name : kServiceNames) health->SetServingStatus(name, serving);
    if (impl_->lighthouses != nullptr) health->SetServingStatus(torchft::kServiceName, serving);
  }
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (impl_->stopped) return;
  impl_->stopped = true;
  const Clock& clock = Clock::Steady();
  const Instant end = clock.Now() + grace;
  SetServing(false);
  // From here on every call is answered at once, those that come in included. gRPC's own Shutdown
  // waits for all reactors to finish, so they have to be finished first.
  impl_->dispatcher.engine().Shutdown();
  impl_->dispatcher.AwaitIdle(end - clock.Now());
  const absl::Duration rest = std::max(end - clock.Now(), absl::ZeroDuration());
  impl_->listener.reset();
  if (impl_->framed_rpc_server != nullptr)
    impl_->framed_rpc_server->Stop(std::min(rest, kLastGrace));
  if (impl_->tcpstore_server != nullptr) impl_->tcpstore_server->Stop(std::min(rest, kLastGrace));
  const gpr_timespec last = GrpcDeadline(std::min(rest, kLastGrace));
  for (const auto& [port, started] : impl_->port_servers) started.server->Shutdown(last);
  for (const auto& [port, started] : impl_->port_servers) started.server->Wait();
  // Answers that wait for the journal are still on their way here.
  impl_->dispatcher.AwaitIdle(kLastAnswers);
}

}  // namespace cohort::coordinator
