#include "worker/daemon/server/worker_server.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "absl/memory/memory.h"
#include "base/framed_rpc/frame.h"
#include "base/port/socket/listen_address.h"
#include "base/port/socket/listen_socket.h"
#include "base/rpc/grpc_deadline.h"
#include "base/rpc/reflection.h"
#include "base/status_macros.h"
#include "base/threads/thread.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/resource_quota.h"

namespace cohort::worker {
namespace {

constexpr const char* kServiceNames[] = {"", "cohort.v1.WorkerService"};
// A client that pings more often than this, without data, is disconnected.
constexpr int kMinPingIntervalMs = 5000;
// If a client's host fails silently, it is noticed after both times: together as long as a lease.
constexpr int kPingMs = 20000;
constexpr int kPingTimeoutMs = 10000;

// Threads for gRPC's synchronous calls: pollers, and one for each call that blocks.
constexpr int kFewestCallThreads = 8;
constexpr int64_t kPollers = 16;

// Returns the number of gRPC's threads: one for each call that may block, plus pollers. If the
// system limits threads, it is at most a quarter of the limit, or kFewestCallThreads if that is
// more. StartThread leaves that many free. gRPC refuses further calls with "Server Threadpool
// Exhausted".
int CallThreads(int max_calls) {
  const int64_t limit = ThreadLimit();
  if (limit == std::numeric_limits<int64_t>::max()) return static_cast<int>(max_calls + kPollers);
  const int64_t share = std::max<int64_t>(limit / 4, kFewestCallThreads);
  const auto threads = std::min<int64_t>(share, max_calls + kPollers);
  ReserveThreadsForCalls(threads);
  return static_cast<int>(threads);
}

// A client whose HTTP/2 settings have not come by then is disconnected.
constexpr int kHandshakeMs = 10000;

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(
    const WorkerServerOptions& options, WorkerService& service) {
  auto result = absl::WrapUnique(new WorkerServer());
  result->stopped_ = true;  // until the server runs
  // First: a server that cannot listen has changed nothing yet.
  std::vector<ListenSocket> sockets;
  for (const std::string& text : options.listen) {
    COHORT_ASSIGN_OR_RETURN(const ListenAddress address, ParseListenAddress(text));
    COHORT_ASSIGN_OR_RETURN(std::vector<ListenSocket> opened,
                            ListenSocket::Open(address, options.unix_socket_mode));
    result->addresses_.push_back(address.WithPort(opened.front().port()));
    std::move(opened.begin(), opened.end(), std::back_inserter(sockets));
  }
  service.ServeAt(result->addresses_);
  // Settings of the whole process; a second call is harmless.
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) COHORT_RETURN_IF_ERROR(EnableReflection());

  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(options.max_message_bytes));
  // Answers have limits of their own; each client sets its limit on answers.
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  // Tells clients that no message may be compressed (http2_guard.cc).
  builder.AddChannelArgument(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET,
                             1 << GRPC_COMPRESS_NONE);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kPingMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kPingTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  grpc::ResourceQuota quota("cohort-worker");
  quota.SetMaxThreads(CallThreads(options.max_calls));
  builder.SetResourceQuota(quota);
  ListenerOptions listener;
  listener.max_connections = options.max_connections;
  listener.tls = options.tls;
  listener.access = options.access;
  listener.plain = options.plain;
  listener.proxies = options.proxies;
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS,
                             listener.http2.max_concurrent_streams);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  // Eight requests of the largest size may be on their way at once.
  listener.http2.max_unfinished_bytes =
      std::max(listener.http2.max_unfinished_bytes, 8 * options.max_message_bytes);
  // This process accepts connections and passes them to gRPC, so that it binds exactly the
  // requested addresses.
  result->acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  builder.RegisterService(&service);
  result->server_ = builder.BuildAndStart();
  if (result->server_ == nullptr) return absl::InternalError("gRPC's server did not start");
  result->stopped_ = false;

  ListenerSinks sinks;
  if (options.max_framed_connections > 0) {
    result->framed_handler_ = std::make_unique<FramedCollectiveHandler>(service);
    result->framed_server_ = std::make_unique<framed_rpc::BlockingServer>(
        framed_rpc::BlockingServerOptions{options.max_message_bytes,
                                          options.max_framed_connections},
        std::vector<std::string>{FramedCollectiveHandler::kMethod}, *result->framed_handler_);
    sinks.protocols.push_back(
        {[](absl::string_view first) { return MatchPreface(first, framed_rpc::kPreface); },
         [server = result->framed_server_.get()](int fd, ListenerPeer peer) {
           server->Adopt(fd, std::move(peer));
         },
         /*notes_requests=*/true});
  }
  sinks.grpc = [acceptor = result->acceptor_.get()](int fd, int /*port*/) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = fd;
    acceptor->HandleNewConnection(&connection);
  };
  result->listener_ =
      std::make_unique<::cohort::Listener>(std::move(sockets), std::move(sinks), listener);
  COHORT_RETURN_IF_ERROR(result->listener_->status());
  result->SetServing(true);
  return result;
}

void WorkerServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = server_->GetHealthCheckService();
  if (health == nullptr) return;
  for (const char* name : kServiceNames) health->SetServingStatus(name, serving);
}

void WorkerServer::Shutdown(absl::Duration grace) {
  if (stopped_) return;
  stopped_ = true;
  SetServing(false);
  listener_.reset();
  if (framed_server_ != nullptr) framed_server_->Stop(grace);
  server_->Shutdown(GrpcDeadline(grace));
  server_->Wait();
}

}  // namespace cohort::worker
