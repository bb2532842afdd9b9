// The peers of the rendezvous benchmark, started as its flags say.
#ifndef COHORT_TESTS_BENCHMARK_PEERS_START_PEERS_H_
#define COHORT_TESTS_BENCHMARK_PEERS_START_PEERS_H_

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "tests/benchmark/implementation.h"
#include "tests/benchmark/rendezvous_cells.h"

namespace cohort::benchmark {

struct PeerFlags {
  std::string floor_server;
  std::string redis_server = "/usr/bin/redis-server";
  std::string python = "/usr/bin/python3";
  std::string tcpstore_script;
  std::string scratch = "/tmp";
};

// Adds --floor-server, --redis-server, --python, --tcpstore-script, --scratch. An empty value
// leaves that peer out.
void AddPeerFlags(CLI::App& app, PeerFlags& flags);
// Adds --quick, --operation and --members.
void AddCellFlags(CLI::App& app, RendezvousOptions& options);

// Appends the peers: the floor first, because the others are compared with it.
absl::Status StartPeers(const PeerFlags& flags,
                        std::vector<std::unique_ptr<Implementation>>& implementations);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_PEERS_START_PEERS_H_
