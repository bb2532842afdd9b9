// The peer systems of the rendezvous benchmark, started as its flags say.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_PEER_SYSTEMS_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_PEER_SYSTEMS_H_

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "tests/benchmark/rendezvous/implementation.h"
#include "tests/benchmark/rendezvous/rendezvous_table.h"

namespace cohort::benchmark {

struct PeerSystemFlags {
  std::string bare_grpc_server;
  std::string redis_server = "/usr/bin/redis-server";
  std::string python = "/usr/bin/python3";
  std::string tcpstore_script;
  std::string scratch = "/tmp";
};

// Adds --bare-grpc-server, --redis-server, --python, --tcpstore-script, --scratch. An empty value
// leaves that system out.
void AddPeerSystemFlags(CLI::App& app, PeerSystemFlags& flags);
// Adds --quick, --operation and --members.
void AddRendezvousFlags(CLI::App& app, RendezvousOptions& options);

// Appends the peer systems: bare gRPC first, because the others are compared with it.
absl::Status StartPeerSystems(const PeerSystemFlags& flags,
                              std::vector<std::unique_ptr<Implementation>>& implementations);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_PEER_SYSTEMS_H_
