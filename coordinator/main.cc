// cohort-coordinator. Exit codes:
//   0  ended by SIGTERM or SIGINT (every call was answered), or --help, --version, --check-config
//   1  could not start: address in use, journal not readable
//   2  the configuration is wrong
//   3  the journal could not be written: nothing was acknowledged after that; restart to continue
#include <pthread.h>
#include <signal.h>

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
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "base/tls/tls_context.h"
#include "coordinator/group_log.h"
#include "coordinator/journal/memory_journal.h"
#include "coordinator/journal/restored_journal.h"
#include "coordinator/journal/sqlite_journal.h"
#include "coordinator/metrics.h"
#include "coordinator/options.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/rpc_server.h"

namespace cohort::coordinator {
namespace {

constexpr int kExitJournal = 3;

std::unique_ptr<Journal> MakeJournal(const Options& options) {
  if (options.restored) {
    return std::make_unique<RestoredJournal>(
        std::make_unique<SqliteJournal>(options.journal_path, BootOfRestore(absl::Now())));
  }
  if (options.journal == JournalKind::kSqlite) {
    return std::make_unique<SqliteJournal>(options.journal_path);
  }
  return std::make_unique<MemoryJournal>();
}

// Returns the exit code.
absl::StatusOr<int> Serve(const Options& options, const sigset_t& signals) {
  const int64_t memory = MemoryLimitBytes();
  if (options.limits.max_bytes_held > DefaultLimits(memory).max_bytes_held) {
    Log(LogLevel::kWarning, "max_bytes_held is over half of the memory that this process may use",
        {{"max_bytes_held", options.limits.max_bytes_held}, {"memory", memory}});
  }
  std::shared_ptr<TlsContext> tls;
  if (options.tls.any()) {
    COHORT_ASSIGN_OR_RETURN(tls, TlsContext::Load(options.tls, TlsSide::kServer));
  }
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<AccessPolicy> access, AccessPolicyOf(options));
  Metrics metrics;
  GroupLog group_log(metrics);
  EngineOptions engine_options;
  engine_options.shards = options.shards;
  engine_options.limits = options.limits;
  const pthread_t main_thread = pthread_self();
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine,
                          Engine::Start(engine_options, MakeJournal(options), Clock::Steady(),
                                        &group_log, [main_thread](const absl::Status& status) {
                                          Log(LogLevel::kError,
                                              "the journal could not be written; ending",
                                              {{"error", status.ToString()}});
                                          pthread_kill(main_thread, SIGTERM);
                                        }));
  DispatcherOptions dispatcher_options;
  dispatcher_options.max_wait = options.max_wait;
  dispatcher_options.max_message_bytes = options.max_message_bytes;
  dispatcher_options.checks_access = access != nullptr;
  Dispatcher dispatcher(dispatcher_options, *engine, &metrics);
  std::optional<PolicyWatch> policy_watch;
  if (access != nullptr) {
    policy_watch.emplace(access, [&engine](bool) { engine->EndCallsWithoutRights(); });
  }

  MetricsAccess metrics_access;
  if (!options.metrics_listen.empty()) {
    COHORT_ASSIGN_OR_RETURN(metrics_access, MetricsAccessOf(options, access, tls));
  }
  RpcServerOptions server_options;
  server_options.listen = options.listen;
  server_options.unix_socket_mode = options.unix_socket_mode;
  server_options.max_message_bytes = static_cast<int>(options.max_message_bytes);
  server_options.listener = options.listener;
  server_options.listener.tls = std::move(tls);
  server_options.listener.access = std::move(access);
  COHORT_ASSIGN_OR_RETURN(server_options.listener.proxies, ParseIpNetworks(options.proxies));
  server_options.listener.plain = options.insecure || !options.tls.any();
  // Eight requests of the largest size may be on their way at once.
  server_options.listener.http2.max_unfinished_bytes =
      std::max(server_options.listener.http2.max_unfinished_bytes, 8 * options.max_message_bytes);
  server_options.ping_timeout = options.ping_timeout;
  server_options.reflection = options.reflection;
  server_options.framed_rpc_threads = options.framed_rpc_threads;
  server_options.tcpstore_threads = options.tcpstore_threads;
  server_options.torchft = options.torchft;
  absl::StatusOr<std::unique_ptr<RpcServer>> server = RpcServer::Start(server_options, dispatcher);
  absl::Status status = server.status();
  if (status.ok() && !options.metrics_listen.empty()) {
    status = metrics.Serve(options.metrics_listen, *engine, std::move(metrics_access));
  }
  if (status.ok() && !options.port_file.empty()) {
    status = WritePortFile(options.port_file, (*server)->addresses());
  }
  if (!status.ok()) {
    engine->Shutdown();
    return status;
  }
  Log(LogLevel::kInfo, "serving",
      {{"addresses", absl::StrJoin((*server)->addresses(), ",")},
       {"metrics_port", metrics.port()},
       {"boot", engine->boot()},
       {"groups", engine->Stats().total.group_count},
       {"server_incarnation", engine->server_incarnation()}});

  const int signal_number = AwaitSignal(signals);
  const bool had_failed = engine->failed();
  Log(LogLevel::kInfo, "ending",
      {{"signal", signal_number}, {"waiters", engine->Stats().total.waiter_count}});
  (*server)->Shutdown(options.drain_grace);
  metrics.Stop();
  const bool failed = had_failed || engine->failed();
  Log(LogLevel::kInfo, "ended", {{"calls_left", dispatcher.active()}});
  return failed ? kExitJournal : 0;
}

}  // namespace
}  // namespace cohort::coordinator

int main(int argc, char** argv) {
  cohort::coordinator::Options options;
  cohort::Flags flags = cohort::coordinator::FlagsOf(options);
  return cohort::RunDaemon(argc, argv, flags, options, [&options](const sigset_t& signals) {
    return cohort::coordinator::Serve(options, signals);
  });
}
