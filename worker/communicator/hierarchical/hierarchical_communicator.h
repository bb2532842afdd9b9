// Ranks on several hosts, some of which share memory.
#ifndef COHORT_WORKER_COMMUNICATOR_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

// The ranks of each host. Every rank occurs once. A host's ranks are in ascending order, and hosts
// are in the order of their first ranks. All ranks have the same value.
using Hosts = std::vector<std::vector<int>>;

// The communicators of which a HierarchicalCommunicator is made.
struct Levels {
  // All ranks, over sockets.
  std::unique_ptr<Communicator> mesh;
  // The ranks of this host, through shared memory, in their order in Hosts.
  std::unique_ptr<Communicator> inside;
  // One rank of each host, over sockets, in the order of hosts. If all hosts have equally many
  // ranks, the ranks with this rank's position on its host; otherwise the first of each host, and
  // null on the others.
  std::unique_ptr<Communicator> across;
};

// Large calls of all_reduce and broadcast go through shared memory inside each host, and their data
// crosses between two hosts once. So do all_gather and reduce_scatter if all hosts have equally
// many ranks. Each rank then carries its share across; otherwise the first rank of each host
// carries all. Averages, all other calls and small ones use the mesh.
//
// All ranks get the same bits. They may differ from those of a group on one host: each host adds up
// its ranks first, and rounds to the tensor's type before data crosses.
class HierarchicalCommunicator final : public Communicator {
 public:
  HierarchicalCommunicator(Levels levels, Hosts hosts);
  // The smallest tensor worth two levels, in bytes.
  static constexpr int64_t kLarge = int64_t{64} << 10;

  int rank() const override { return levels_.mesh->rank(); }
  int size() const override { return levels_.mesh->size(); }

  absl::Status Run(const FlatCall& call, const void* input, void* output,
                   Instant deadline) override;
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                        MessageChannel channel) override {
    return levels_.mesh->Exchange(transfers, deadline, channel);
  }
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers, Instant deadline,
                                           MessageChannel channel) override {
    return levels_.mesh->AwaitMessage(peers, deadline, channel);
  }
  void Drain(Instant deadline) override { levels_.inside->Drain(deadline); }
  void Abort(absl::string_view cause) override;
  // The mesh finds first that a rank has left, before calls on the other levels begin.
  void NoteLeft(int rank, absl::string_view cause) override {
    levels_.mesh->NoteLeft(rank, cause);
  }

 private:
  struct HostPosition {
    int host = 0;
    int index = 0;  // among its ranks
  };

  static std::vector<HostPosition> PositionsOf(const Hosts& hosts);

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
  const std::vector<HostPosition> positions_;  // by rank
  const HostPosition own_;
  const bool even_;  // as many ranks on each host
  std::vector<char> scratch_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HIERARCHICAL_HIERARCHICAL_COMMUNICATOR_H_
