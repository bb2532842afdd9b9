// Ranks that share memory.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_

#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/host/host_mailbox.h"
#include "worker/communicator/host/host_space.h"
#include "worker/communicator/host/meeting.h"
#include "worker/communicator/host/reduce_kernel.h"
#include "worker/communicator/host/store_choice.h"
#include "worker/communicator/host/waiter.h"

namespace cohort::worker {

// What the ranks of one host share, as one of them has mapped it.
struct HostMemory {
  HostSpace space;
  RankHeaps heaps;
  // What the ranks are called in errors, by rank, where they are some of a larger group; else
  // empty.
  std::vector<int> names;
  WaitLog* waits = nullptr;  // outlives the communicator; null: nobody wants to know
  bool gives_way = false;    // as where ranks outnumber processors: waits without looking
};

// Three ways, by size and by where the tensors are:
//
// - small: each rank puts what others need into its arrival line or its buffer, and all meet. Each
//   takes what it needs, and computes it itself. One meeting.
// - direct: all tensors that others touch lie in the ranks' heaps. They meet and say where; then
//   each rank does its slice of the work, from all inputs to all outputs, at twice the tensor's
//   size of traffic for an all_reduce; and they meet again.
// - staged: others. As small, a chunk of each buffer at a time.
//
// The calling thread does its own share; there is no other.
class HostCommunicator final : public Communicator {
 public:
  // `memory` was made for all ranks of the communicator.
  HostCommunicator(HostMemory memory, int rank);

  int rank() const override { return rank_; }
  int size() const override { return space_.ranks(); }

  absl::Status Run(const FlatCall& call, const void* input, void* output,
                   Instant deadline) override;
  absl::Status TakeDeferredError() override { return meeting_.TakeDeferredError(); }
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline) override;
  absl::StatusOr<bool> HasMessage(int peer) override { return mailbox_.HasMessage(peer); }
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline) override {
    return mailbox_.AwaitMessage(peers, deadline);
  }
  absl::Status ExchangeNotes(absl::Span<const Transfer> notes, Instant deadline) override;
  absl::StatusOr<bool> HasNote(int peer) override { return notes_.HasMessage(peer); }
  void Drain(Instant deadline) override;
  void Abort(absl::string_view cause) override;

 private:
  // The stages of one operation's meetings.
  static constexpr int kPut = 0;
  static constexpr int kPutLate = 1;
  static constexpr int kReduced = 2;
  static constexpr int kDone = 3;

  // `size` elements from element `at` on, of each part.
  struct Chunk {
    int64_t at = 0;
    int64_t size = 0;
  };
  // What a large operation does, by the three steps of which it is made.
  struct Ways {
    // Whether the inputs or the outputs must lie in heaps for the direct way.
    bool needs_inputs = false;
    bool needs_outputs = false;
    // How many chunks lie side by side in one buffer.
    int parts = 1;
    absl::FunctionRef<void()> direct;
    absl::FunctionRef<void(const Chunk&)> put;
    absl::FunctionRef<absl::Status(const Chunk&)> take;
  };
  // The collectives, of checked arguments.
  absl::Status RunAllReduce(const FlatCall& call, const void* input, void* output,
                            Instant deadline);
  absl::Status RunReduce(const FlatCall& call, const void* input, void* output, Instant deadline);
  absl::Status RunBroadcast(const FlatCall& call, const void* input, void* output,
                            Instant deadline);
  absl::Status RunEagerBroadcast(const FlatCall& call, const void* input, void* output,
                                 Instant deadline);
  absl::Status RunAllGather(const FlatCall& call, const void* input, void* output,
                            Instant deadline);
  absl::Status RunReduceScatter(const FlatCall& call, const void* input, void* output,
                                Instant deadline);
  absl::Status RunAllToAll(const FlatCall& call, const void* input, void* output, Instant deadline);
  absl::Status RunGather(const FlatCall& call, const void* input, void* output, Instant deadline);
  absl::Status RunScatter(const FlatCall& call, const void* input, void* output, Instant deadline);

  // Puts `bytes` where all see them, and meets. Of each rank: deposit(rank), until the next.
  // `bytes_of_all`: the most that any rank puts, where they differ.
  absl::Status Deposit(const FlatCall& call, const void* data, int64_t bytes, Instant deadline,
                       int64_t bytes_of_all = 0);
  absl::Status MeetForBuffers(const FlatCall& call, int stage, Instant deadline);
  const char* deposit(int rank) const { return in_line_ ? meeting_.data(rank) : buffer(rank); }
  // Of all ranks in order, `offset` bytes into each.
  const std::vector<const void*>& Deposits(int64_t offset);
  // The same, but this rank's own, which it has not put there, is at `own`.
  const std::vector<const void*>& DepositsAnd(const void* own, int64_t offset);

  absl::Status Large(const FlatCall& call, const void* input, void* output, const Ways& ways,
                     Instant deadline);
  enum class Agreed { kDirect, kStaged, kMixed };
  // Learns from the last meeting where all ranks' tensors are.
  absl::StatusOr<Agreed> LearnPlaces(const FlatCall& call, const Ways& ways);
  Chunk FirstChunk(const FlatCall& call, const Ways& ways) const;

  // Into this rank's buffer, for others to read.
  void Put(void* to, const void* from, int64_t bytes);

  // A rank's share of `bytes`, cut between cache lines.
  struct Slice {
    int64_t begin = 0;
    int64_t size = 0;
  };
  Slice SliceOf(int rank, int64_t bytes) const;
  // What this rank does of an operation that touches so many bytes in all: stores so many that
  // others read.
  void ForOthers(int64_t bytes, int64_t touched, absl::FunctionRef<void(Stores)> body);
  // The same, of an operation that cuts `bytes` between ranks and stores `copies` of each of
  // them in memory of others.
  void ForShare(int64_t bytes, int copies, int64_t touched,
                absl::FunctionRef<void(Slice, Stores)> body);
  // Tensors of the direct way, `offset` bytes into each.
  const std::vector<const void*>& Inputs(int64_t offset);
  const std::vector<void*>& Outputs(int64_t offset) { return OutputsBut(nullptr, offset); }
  // Without that which is `input` itself.
  const std::vector<void*>& OutputsBut(const void* input, int64_t offset);
  // For an operation that touches so many bytes in all.
  Stores StoresOf(int64_t bytes) const;

  // Takes the other buffer, for so many bytes.
  void NextBuffer(int64_t bytes);
  char* buffer(int rank) const { return space_.buffer(rank, which_) + at_; }

  const HostSpace space_;
  const RankHeaps heaps_;
  const std::vector<int> names_;
  const int rank_;
  const int64_t stream_from_;
  Waiter waiter_;
  Meeting meeting_;
  HostMailbox mailbox_;
  HostMailbox notes_;
  int which_ = 0;                       // of this rank's buffers, was used last
  int64_t at_ = 0;                      // from where on
  Stores taken_out_ = Stores::kCached;  // how what is taken from buffers is stored
  StoreChoice put_;                     // of what goes into buffers
  StoreChoice direct_;                  // of what goes into others' tensors
  bool in_line_ = false;                // the last deposits
  std::vector<const char*> inputs_;     // by rank, of the direct way
  std::vector<char*> outputs_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_
