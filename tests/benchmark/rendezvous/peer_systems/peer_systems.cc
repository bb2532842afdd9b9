#include "tests/benchmark/rendezvous/peer_systems/peer_systems.h"

#include <utility>

#include "base/status_macros.h"
#include "tests/benchmark/rendezvous/peer_systems/bare_grpc.h"
#include "tests/benchmark/rendezvous/peer_systems/redis.h"
#include "tests/benchmark/rendezvous/peer_systems/tcpstore.h"

namespace cohort::benchmark {

void AddPeerSystemFlags(CLI::App& app, PeerSystemFlags& flags) {
  app.add_option("--bare-grpc-server", flags.bare_grpc_server,
                 "bare_grpc_server; empty: without bare gRPC");
  app.add_option("--redis-server", flags.redis_server, "redis-server; empty: without Redis");
  app.add_option("--python", flags.python, "a Python that has torch");
  app.add_option("--tcpstore-script", flags.tcpstore_script,
                 "tcpstore_stateless.py; empty: without the stateless group");
  app.add_option("--scratch", flags.scratch, "a folder for logs, port files and journals");
}

void AddRendezvousFlags(CLI::App& app, RendezvousOptions& options) {
  app.add_flag("--quick", options.quick, "fewer repetitions");
  app.add_option("--operation", options.operations,
                 "only these: barrier, all_gather_object, handoff, ops, join");
  app.add_option("--members", options.members, "only with these numbers of members");
}

absl::Status StartPeerSystems(const PeerSystemFlags& flags,
                              std::vector<std::unique_ptr<Implementation>>& implementations) {
  if (!flags.bare_grpc_server.empty()) {
    COHORT_ASSIGN_OR_RETURN(auto bare_grpc, StartBareGrpc(flags.bare_grpc_server, flags.scratch));
    implementations.push_back(std::move(bare_grpc));
  }
  if (!flags.redis_server.empty()) {
    COHORT_ASSIGN_OR_RETURN(auto redis, StartRedis(flags.redis_server, flags.scratch));
    implementations.push_back(std::move(redis));
  }
  if (!flags.tcpstore_script.empty()) {
    COHORT_ASSIGN_OR_RETURN(auto tcpstore,
                            StartTcpStore(flags.python, flags.tcpstore_script, flags.scratch));
    implementations.push_back(std::move(tcpstore));
  }
  return absl::OkStatus();
}

}  // namespace cohort::benchmark
