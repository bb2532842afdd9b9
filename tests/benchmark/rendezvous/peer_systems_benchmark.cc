// The rendezvous benchmark of the peer systems alone, without Cohort: `run.sh peer-systems` runs
// it.
//
//   tests/benchmark/run.sh peer-systems --members 8 --operation barrier
#include <cstdio>
#include <memory>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/benchmark/rendezvous/peer_systems/peer_systems.h"
#include "tests/benchmark/rendezvous/rendezvous_table.h"

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  PeerSystemFlags peers;
  RendezvousOptions options;
  bool json = false;
  CLI::App app("The peer systems of the rendezvous benchmark");
  app.add_flag("--json", json, "one JSON object per line");
  AddPeerSystemFlags(app, peers);
  AddRendezvousFlags(app, options);
  CLI11_PARSE(app, argc, argv);

  RaiseDescriptorLimit();
  std::vector<std::unique_ptr<Implementation>> implementations;
  const absl::Status started = StartPeerSystems(peers, implementations);
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.ToString().c_str());
    return 1;
  }
  Report report(json);
  return RunRendezvous(options, implementations, report) == 0 ? 0 : 1;
}
