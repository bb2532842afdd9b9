// The rendezvous benchmark without Cohort: what the peers alone do on this machine. `run.sh peers`
// runs it.
//
//   tests/benchmark/run.sh peers --members 8 --operation barrier
#include <cstdio>
#include <memory>
#include <vector>

#include "CLI/CLI.hpp"
#include "tests/benchmark/peers/start_peers.h"
#include "tests/benchmark/rendezvous_cells.h"

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  PeerFlags peers;
  RendezvousOptions options;
  bool json = false;
  CLI::App app("The peers of the rendezvous benchmark");
  app.add_flag("--json", json, "one JSON object per line");
  AddPeerFlags(app, peers);
  AddCellFlags(app, options);
  CLI11_PARSE(app, argc, argv);

  RaiseDescriptorLimit();
  std::vector<std::unique_ptr<Implementation>> implementations;
  const absl::Status started = StartPeers(peers, implementations);
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.ToString().c_str());
    return 1;
  }
  Report report(json);
  return RunRendezvous(options, implementations, report) == 0 ? 0 : 1;
}
