#include "coordinator/service/rpc_server.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status_macros.h"
#include "coordinator/service/admin_service.h"
#include "coordinator/service/group_service.h"
#include "coordinator/service/listen_address.h"
#include "coordinator/service/messaging_service.h"
#include "coordinator/service/reflection.h"
#include "coordinator/service/store_service.h"
#include "coordinator/service/unique_id_service.h"
#include "grpcpp/health_check_service_interface.h"
#include "grpcpp/server.h"
#include "grpcpp/server_builder.h"

namespace cohort::coordinator {
namespace {

constexpr char kServiceNames[][32] = {
    "",
    "cohort.v1.GroupService",
    "cohort.v1.MessagingService",
    "cohort.v1.StoreService",
    "cohort.v1.UniqueIdService",
    "cohort.v1.AdminService",
};
// A client that pings more often than this, without data, is sent away.
constexpr int kMinPingIntervalMs = 10000;
// What is left for gRPC's own streams (health watches) once ours have ended.
constexpr absl::Duration kLastGrace = absl::Milliseconds(200);

std::chrono::system_clock::time_point After(absl::Duration duration) {
  return std::chrono::system_clock::now() + absl::ToChronoMilliseconds(duration);
}

}  // namespace

struct RpcServer::Impl {
  explicit Impl(Dispatcher& shared)
      : dispatcher(shared),
        group(shared),
        messaging(shared),
        store(shared),
        unique_id(shared),
        admin(shared) {}

  Dispatcher& dispatcher;
  GroupService group;
  MessagingService messaging;
  StoreService store;
  UniqueIdService unique_id;
  AdminService admin;
  // After the services: it goes first.
  std::unique_ptr<grpc::Server> server;
  bool stopped = false;
};

RpcServer::RpcServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(const RpcServerOptions& options,
                                                            Dispatcher& dispatcher) {
  if (options.listen.empty()) return absl::InvalidArgumentError("no address to listen on");
  std::vector<ListenAddress> listen;
  for (const std::string& text : options.listen) {
    COHORT_ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text));
    listen.push_back(std::move(address));
  }
  // Switches of the whole process; setting them again is harmless.
  grpc::EnableDefaultHealthCheckService(true);
  if (options.reflection) COHORT_RETURN_IF_ERROR(EnableReflection());

  auto impl = std::make_unique<Impl>(dispatcher);
  grpc::ServerBuilder builder;
  // Otherwise two servers share one port and each gets half of the calls.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  // Answers have their own bounds; the limit of the reader is the client's to set.
  builder.SetMaxSendMessageSize(-1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  if (options.max_concurrent_streams > 0) {
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, options.max_concurrent_streams);
  }
  std::vector<int> ports(listen.size(), 0);
  for (size_t i = 0; i < listen.size(); ++i) {
    builder.AddListeningPort(listen[i].text, grpc::InsecureServerCredentials(), &ports[i]);
  }
  builder.RegisterService(&impl->group);
  builder.RegisterService(&impl->messaging);
  builder.RegisterService(&impl->store);
  builder.RegisterService(&impl->unique_id);
  builder.RegisterService(&impl->admin);
  impl->server = builder.BuildAndStart();

  std::unique_ptr<RpcServer> server(new RpcServer(std::move(impl)));
  for (size_t i = 0; i < listen.size(); ++i) {
    // gRPC reports what it bound for each address; 0 (or no server at all) is a failure.
    if (server->impl_->server == nullptr || ports[i] <= 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen[i].text,
                       ": in use, not an address of this machine, or not allowed"));
    }
    server->addresses_.push_back(listen[i].WithPort(ports[i]));
  }
  server->SetServing(true);
  return server;
}

RpcServer::~RpcServer() { Shutdown(absl::ZeroDuration()); }

void RpcServer::SetServing(bool serving) {
  grpc::HealthCheckServiceInterface* const health = impl_->server->GetHealthCheckService();
  if (health == nullptr) return;
  for (const char* name : kServiceNames) health->SetServingStatus(name, serving);
}

void RpcServer::Shutdown(absl::Duration grace) {
  if (impl_->stopped || impl_->server == nullptr) return;
  impl_->stopped = true;
  const absl::Time end = absl::Now() + grace;
  SetServing(false);
  // From here on every call is answered at once, those that come in included. gRPC's own Shutdown
  // waits for all reactors to finish, so they have to be finished first.
  impl_->dispatcher.engine().Shutdown();
  while (impl_->dispatcher.active() > 0 && absl::Now() < end) {
    absl::SleepFor(absl::Milliseconds(1));
  }
  const absl::Duration rest = std::max(end - absl::Now(), absl::ZeroDuration());
  impl_->server->Shutdown(After(std::min(rest, kLastGrace)));
  impl_->server->Wait();
}

}  // namespace cohort::coordinator
