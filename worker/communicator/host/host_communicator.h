// Ranks that share memory.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/host/host_algorithms.h"
#include "worker/communicator/host/host_mailbox.h"
#include "worker/communicator/host/shared/futex_waiter.h"
#include "worker/communicator/host/shared/host_shared_memory.h"

namespace cohort::worker {

// The memory that the ranks of one host share, as one of them has mapped it.
struct HostMemory {
  HostSharedMemory space;
  RankHeaps heaps;
  // The ranks' numbers in errors, by rank, if they are part of a larger group; otherwise empty.
  std::vector<int> names;
  WaitLog* waits = nullptr;  // outlives the communicator; null: waits are not logged
  bool gives_way = false;    // waits without spinning, as where ranks outnumber processors
  // Operations that touch as many bytes store past the cache. Absent: most of the last-level cache.
  std::optional<int64_t> stream_from = {};
};

// Run chooses one of three algorithms by the size of the call and the place of the tensors: see
// Algorithm in host_algorithms.h. Each collective then states the work of this rank on each
// algorithm.
//
// The calling thread does its rank's share; the communicator has no threads.
class HostCommunicator final : public Communicator {
 public:
  // `memory` was made for all ranks of the communicator.
  HostCommunicator(HostMemory memory, int rank);

  int rank() const override { return rank_; }
  int size() const override { return space_.ranks(); }

  absl::Status Run(const FlatCall& call, const void* input, void* output,
                   Instant deadline) override;
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                        MessageChannel channel = MessageChannel::kData) override;
  absl::StatusOr<MessageInfo> AwaitMessage(
      absl::Span<const int> peers, Instant deadline,
      MessageChannel channel = MessageChannel::kData) override {
    return MailboxOf(channel).AwaitMessage(peers, deadline);
  }
  void Drain(Instant deadline) override;
  void Abort(absl::string_view cause) override;
  void NoteLeft(int rank, absl::string_view cause) override;

 private:
  HostMailbox& MailboxOf(MessageChannel channel) {
    return channel == MessageChannel::kData ? mailbox_ : control_mailbox_;
  }

  // The collectives. Run has checked the arguments and chosen the algorithm.
  absl::Status RunAllReduce(const FlatCall& call, const void* input, void* output, Instant deadline,
                            Algorithm algorithm);
  absl::Status StagedAllReduce(const FlatCall& call, const void* input, void* output,
                               Instant deadline);
  absl::Status RunReduce(const FlatCall& call, const void* input, void* output, Instant deadline,
                         Algorithm algorithm);
  absl::Status RunBroadcast(const FlatCall& call, const void* input, void* output, Instant deadline,
                            Algorithm algorithm);
  absl::Status RunEagerBroadcast(const FlatCall& call, const void* input, void* output,
                                 Instant deadline);
  absl::Status RunAllGather(const FlatCall& call, const void* input, void* output, Instant deadline,
                            Algorithm algorithm);
  absl::Status RunReduceScatter(const FlatCall& call, const void* input, void* output,
                                Instant deadline, Algorithm algorithm);
  absl::Status RunAllToAll(const FlatCall& call, const void* input, void* output, Instant deadline,
                           Algorithm algorithm);
  absl::Status RunGather(const FlatCall& call, const void* input, void* output, Instant deadline,
                         Algorithm algorithm);
  absl::Status RunScatter(const FlatCall& call, const void* input, void* output, Instant deadline,
                          Algorithm algorithm);

  // Steps of several collectives.
  void PutChunk(const FlatCall& call, const void* input, const Chunk& chunk);
  void PutChunkOfEachPart(const FlatCall& call, const void* input, const Chunk& chunk);
  void ReduceDeposits(const FlatCall& call, void* output, const Chunk& chunk);
  void CollectDeposits(const FlatCall& call, const void* input, void* output, const Chunk& chunk);

  const HostSharedMemory space_;
  const RankHeaps heaps_;
  const std::vector<int> names_;
  const int rank_;
  FutexWaiter waiter_;
  HostAlgorithms algorithms_;
  HostMailbox mailbox_;
  HostMailbox control_mailbox_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_
