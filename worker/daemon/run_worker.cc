#include "worker/daemon/run_worker.h"

#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/policy_watch.h"
#include "base/clock.h"
#include "base/daemon/access_policy_of_flags.h"
#include "base/daemon/heap_trim.h"
#include "base/daemon/metrics_access.h"
#include "base/daemon/port_file.h"
#include "base/daemon/run_daemon.h"
#include "base/memory/memory_limit.h"
#include "base/port/peer/ip_network.h"
#include "base/shm/host_folder.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "base/tls/tls_context.h"
#include "worker/daemon/limits/call_gate.h"
#include "worker/daemon/limits/quota.h"
#include "worker/daemon/methods/metrics.h"
#include "worker/daemon/methods/worker_service.h"
#include "worker/daemon/options.h"
#include "worker/daemon/server/attach_server.h"
#include "worker/daemon/server/worker_server.h"
#include "worker/daemon/sessions/session_table.h"

namespace cohort::worker {
namespace {

// For ended calls to return, and for sessions to leave their groups.
constexpr absl::Duration kLastAnswers = absl::Seconds(2);
constexpr absl::Duration kLastGrace = absl::Milliseconds(200);

// Returns false if a call or a leave is still in progress. The process then ends without waiting
// for it.
bool Drain(absl::Duration grace, SessionTable& sessions, CallGate& gate, WorkerServer& server) {
  sessions.Drain();
  server.SetServing(false);
  const bool finished = gate.AwaitIdle(Clock::Steady().Now() + grace);
  if (!finished) {
    Log(LogLevel::kWarning, "calls are still in flight at the end of the grace",
        {{"calls", gate.active()}});
  }
  for (const std::shared_ptr<Session>& session : sessions.All()) {
    sessions.End(session, "its worker is draining");
  }
  const Instant end = Clock::Steady().Now() + kLastAnswers;
  const bool answered = gate.AwaitIdle(end);
  const bool left = sessions.AwaitLeft(end);
  if (!answered) return false;
  server.Shutdown(kLastGrace);
  return left;
}

// Shares of the process's file descriptors. The rest is for files, for connections to coordinators,
// and for descriptors in messages.
struct DescriptorShares {
  int connections = 0;  // half, including framed RPC
  // A quarter. A client that gets no connection for collectives calls by gRPC.
  int framed_connections = 0;
  int sessions = 0;  // three eighths
};

DescriptorShares ShareDescriptors() {
  // With half as many connections, gRPC takes gigabytes.
  constexpr rlim_t kMost = 131072;
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) limit.rlim_cur = 1024;
  const int all = static_cast<int>(std::min(limit.rlim_cur, kMost));
  return {all / 2, all / 4, all / 8 * 3};
}

// Returns the exit code.
absl::StatusOr<int> Serve(const Options& options, const sigset_t& signals) {
  const DescriptorShares shares = ShareDescriptors();
  QuotaLimits descriptors;
  descriptors.max_in_all = options.max_descriptors > 0 ? options.max_descriptors : shares.sessions;
  descriptors.max_per_session = options.max_descriptors_per_session > 0
                                    ? options.max_descriptors_per_session
                                    : descriptors.max_in_all / 2;
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<AccessPolicy> access, AccessPolicyOf(options));
  SessionTable sessions(Quotas(descriptors, TensorLimitsOf(options, MemoryLimitBytes())), access);
  CallGate gate(options.max_calls, options.max_calls_per_session);
  Metrics metrics;
  COHORT_ASSIGN_OR_RETURN(const shm::HostFolder folder, shm::HostFolder::Open(options.host_folder));
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<AttachServer> attach,
                          AttachServer::Start(sessions, folder));
  WorkerServiceOptions service_options;
  service_options.coordinator = options.coordinator;
  service_options.allowed_coordinators = options.allowed_coordinators;
  service_options.checks_access = access != nullptr;
  std::optional<PolicyWatch> policy_watch;
  if (access != nullptr) {
    policy_watch.emplace(access, [&sessions](bool by_files) {
      // A session outlives its signed token.
      if (by_files) sessions.EndWithoutRights();
    });
  }
  service_options.advertised_host = options.advertise;
  service_options.host_identity = options.host_identity;
  service_options.host_folder = options.host_folder;
  service_options.max_message_bytes = options.max_message_bytes;
  service_options.attach_socket = attach->name();
  service_options.attach_folder = folder.id();
  service_options.stream_idle_limit = options.stream_idle_limit;
  WorkerService service(service_options, sessions, gate, metrics);
  WorkerServerOptions server_options;
  server_options.listen = options.listen;
  server_options.unix_socket_mode = options.unix_socket_mode;
  server_options.max_message_bytes = options.max_message_bytes;
  server_options.reflection = options.reflection;
  server_options.max_framed_connections = std::min(options.max_calls, shares.framed_connections);
  server_options.max_calls = options.max_calls;
  server_options.max_connections = shares.connections;
  if (options.tls.any()) {
    COHORT_ASSIGN_OR_RETURN(server_options.tls, TlsContext::Load(options.tls, TlsSide::kServer));
  }
  server_options.access = access;
  COHORT_ASSIGN_OR_RETURN(server_options.proxies, ParseIpNetworks(options.proxies));
  server_options.plain = options.insecure || !options.tls.any();
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerServer> server,
                          WorkerServer::Start(server_options, service));
  if (!options.metrics_listen.empty()) {
    COHORT_ASSIGN_OR_RETURN(MetricsAccess metrics_access,
                            MetricsAccessOf(options, access, server_options.tls));
    COHORT_RETURN_IF_ERROR(
        metrics.Serve(options.metrics_listen, sessions, std::move(metrics_access)));
  }
  if (!options.port_file.empty()) {
    COHORT_RETURN_IF_ERROR(WritePortFile(options.port_file, server->addresses()));
  }
  Log(LogLevel::kInfo, "serving",
      {{"addresses", absl::StrJoin(server->addresses(), ",")},
       {"metrics_port", metrics.port()},
       {"coordinator", options.coordinator}});

  const int signal_number = AwaitSignal(signals);
  Log(LogLevel::kInfo, "ending", {{"signal", signal_number}, {"calls", gate.active()}});
  const bool drained = Drain(options.drain_grace, sessions, gate, *server);
  metrics.Stop();
  Log(LogLevel::kInfo, "ended", {{"calls_left", gate.active()}});
  if (!drained) {
    // A join or a leave waits for a coordinator that may be away.
    FinishLogging(absl::Seconds(1));
    _exit(0);
  }
  return 0;
}

}  // namespace

int RunWorker(int argc, char** argv) {
  Options options;
  Flags flags = FlagsOf(options);
  return RunDaemon(argc, argv, flags, options,
                   [&](const sigset_t& signals) { return Serve(options, signals); });
}

}  // namespace cohort::worker
