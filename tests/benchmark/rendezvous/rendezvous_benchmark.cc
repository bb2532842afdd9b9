// The rendezvous benchmark: Cohort, bare gRPC, and systems in common use, in one run.
//
//   tests/benchmark/run.sh rendezvous                       # the whole table
//   tests/benchmark/run.sh rendezvous --json --quick
//   tests/benchmark/run.sh rendezvous --operation barrier --members 256
//
// Why the comparison is fair:
//   * In each repetition every implementation runs once, so that drift hits all alike; each is warm
//     before.
//   * Cohort and bare gRPC do the same client work: asynchronous calls from this one process to a
//     server in another, over equally many connections, with as many bytes each way (wire_sizes.h).
//     Their difference is the cost of Cohort's coordinator and library.
//   * A round is timed from the first call issued to the last answer received.
//   * The stateless group has a process per member, as in use; see
//   peer_systems/tcpstore_stateless.py.
//   * Redis gets a connection per blocking client and no persistence. It is compared with journal
//     "memory"; the "sqlite" rows are shown, too. Their cost of a write falls with the number of
//     callers, who share a transaction.
//   * `ops` and `handoff` use blocking calls in threads everywhere, because that is how they are
//     used.
#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/status_macros.h"
#include "tests/benchmark/rendezvous/cohort_implementation.h"
#include "tests/benchmark/rendezvous/peer_systems/peer_systems.h"
#include "tests/benchmark/rendezvous/rendezvous_table.h"

namespace cohort::benchmark {
namespace {

absl::Status StartAll(const std::string& coordinator, const std::vector<std::string>& journals,
                      const std::string& certificates, const PeerSystemFlags& peers,
                      std::vector<std::unique_ptr<Implementation>>& implementations) {
  for (const std::string& journal : journals) {
    CoordinatorOptions options;
    options.program = coordinator;
    options.journal = journal;
    options.scratch = peers.scratch;
    COHORT_ASSIGN_OR_RETURN(auto cohort, StartCohort(options));
    implementations.push_back(std::move(cohort));
    if (certificates.empty()) continue;
    COHORT_ASSIGN_OR_RETURN(auto with_tls, StartCohort(options, certificates));
    implementations.push_back(std::move(with_tls));
  }
  if (!certificates.empty()) return absl::OkStatus();
  return StartPeerSystems(peers, implementations);
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  using namespace cohort::benchmark;
  PeerSystemFlags peers;
  RendezvousOptions options;
  std::string coordinator, certificates;
  std::vector<std::string> journals = {"memory", "sqlite"};
  bool json = false;
  CLI::App app("The rendezvous benchmark");
  app.add_flag("--json", json, "one JSON object per line");
  app.add_option("--coordinator", coordinator, "the path of cohort-coordinator")->required();
  app.add_option("--journal", journals, "which journals of the coordinator to measure");
  app.add_option("--certificates", certificates,
                 "a folder with the certificates `coordinator` and `rank`: compares plain text "
                 "with mutual TLS alone");
  AddPeerSystemFlags(app, peers);
  AddRendezvousFlags(app, options);
  CLI11_PARSE(app, argc, argv);

  RaiseDescriptorLimit();
  std::vector<std::unique_ptr<Implementation>> implementations;
  const absl::Status started =
      StartAll(coordinator, journals, certificates, peers, implementations);
  if (!started.ok()) {
    std::fprintf(stderr, "%s\n", started.ToString().c_str());
    return 1;
  }
  Report report(json);
  return RunRendezvous(options, implementations, report) == 0 ? 0 : 1;
}
