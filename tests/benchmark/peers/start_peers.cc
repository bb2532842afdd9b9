#include "tests/benchmark/peers/start_peers.h"

#include <utility>

#include "base/status_macros.h"
#include "tests/benchmark/peers/grpc_floor.h"
#include "tests/benchmark/peers/redis.h"
#include "tests/benchmark/peers/tcpstore.h"

namespace cohort::benchmark {

void AddPeerFlags(CLI::App& app, PeerFlags& flags) {
  app.add_option("--floor-server", flags.floor_server,
                 "grpc_floor_server; empty: without the floor");
  app.add_option("--redis-server", flags.redis_server, "redis-server; empty: without Redis");
  app.add_option("--python", flags.python, "a Python that has torch");
  app.add_option("--tcpstore-script", flags.tcpstore_script,
                 "tcpstore_stateless.py; empty: without the stateless group");
  app.add_option("--scratch", flags.scratch, "a folder for logs, port files and journals");
}

void AddCellFlags(CLI::App& app, RendezvousOptions& options) {
  app.add_flag("--quick", options.quick, "fewer repetitions");
  app.add_option("--operation", options.operations,
                 "only these: barrier, all_gather_object, handoff, ops, join");
  app.add_option("--members", options.members, "only cells of these sizes");
}

absl::Status StartPeers(const PeerFlags& flags,
                        std::vector<std::unique_ptr<Implementation>>& implementations) {
  if (!flags.floor_server.empty()) {
    COHORT_ASSIGN_OR_RETURN(auto floor, StartGrpcFloor(flags.floor_server, flags.scratch));
    implementations.push_back(std::move(floor));
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
