// Ranks on several hosts, some of which share memory.
#ifndef COHORT_WORKER_COMMUNICATOR_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

// Which ranks share a host: every rank once, each host's in order, hosts in the order of their
// first ranks. The same on all ranks.
using Hosts = std::vector<std::vector<int>>;

// What a HierarchicalCommunicator is made of.
struct Levels {
  // All ranks, by connections.
  std::unique_ptr<Communicator> mesh;
  // The ranks of this host, by its memory; by their order in Hosts.
  std::unique_ptr<Communicator> inside;
  // One rank of each host, by connections, by the order of hosts: those with this rank's place on
  // its host, where all hosts have as many ranks; else the first of each, and null on the others.
  std::unique_ptr<Communicator> across;
};

// Large reductions, broadcasts and gathers go through memory inside each host and cross between two
// hosts once: each rank of a host takes its share of what crosses, where all hosts have as many
// ranks; else their first ones do. Everything else, and all that is small, goes straight.
//
// All ranks have the same bits. They are not those of one host: its ranks are added up first, and
// what crosses is rounded to the tensor's type.
class HierarchicalCommunicator final : public Communicator {
 public:
  HierarchicalCommunicator(Levels levels, Hosts hosts);
  // The smallest tensor worth two levels, in bytes.
  static constexpr int64_t kLarge = int64_t{64} << 10;

  int rank() const override { return levels_.mesh->rank(); }
  int size() const override { return levels_.mesh->size(); }

  absl::Status Run(const FlatCall& call, const void* input, void* output,
                   Instant deadline) override;
  absl::Status TakeDeferredError() override { return absl::OkStatus(); }
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline) override {
    return levels_.mesh->Exchange(transfers, deadline);
  }
  absl::StatusOr<bool> HasMessage(int peer) override { return levels_.mesh->HasMessage(peer); }
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline) override {
    return levels_.mesh->AwaitMessage(peers, deadline);
  }
  absl::Status ExchangeNotes(absl::Span<const Transfer> notes, Instant deadline) override {
    return levels_.mesh->ExchangeNotes(notes, deadline);
  }
  absl::StatusOr<bool> HasNote(int peer) override { return levels_.mesh->HasNote(peer); }
  void Drain(Instant deadline) override { levels_.inside->Drain(deadline); }
  void Abort(absl::string_view cause) override;

 private:
  struct Place {
    int host = 0;
    int index = 0;  // among its ranks
  };

  static std::vector<Place> PlacesOf(const Hosts& hosts);

  // Whether the call is worth two levels.
  bool TakesLevels(const FlatCall& call) const;
  absl::Status AllReduceInLevels(const FlatCall& call, const void* input, void* output,
                                 Instant deadline);
  absl::Status BroadcastInLevels(const FlatCall& call, const void* input, void* output,
                                 Instant deadline);
  absl::Status AllGatherInLevels(const FlatCall& call, const void* input, void* output,
                                 Instant deadline);
  absl::Status ReduceScatterInLevels(const FlatCall& call, const void* input, void* output,
                                     Instant deadline);
  // Compares the calls of all ranks. Without it a mismatch would be found on some levels only.
  absl::Status Agree(const FlatCall& call, Instant deadline);
  // An error on one level ends the other levels.
  absl::Status Checked(absl::Status status);

  const Levels levels_;
  const Hosts hosts_;
  const std::vector<Place> places_;  // by rank
  const Place own_;
  const bool even_;  // as many ranks on each host
  std::vector<char> scratch_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
