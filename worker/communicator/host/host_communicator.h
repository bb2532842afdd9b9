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
#include "worker/communicator/host/reduce/reduce_kernel.h"
#include "worker/communicator/host/reduce/store_choice.h"
#include "worker/communicator/host/shared/arrival_barrier.h"
#include "worker/communicator/host/shared/futex_waiter.h"
#include "worker/communicator/host/shared/host_space.h"

namespace cohort::worker {

// The memory that the ranks of one host share, as one of them has mapped it.
struct HostMemory {
  HostSpace space;
  RankHeaps heaps;
  // The ranks' numbers in errors, by rank, if they are part of a larger group; otherwise empty.
  std::vector<int> names;
  WaitLog* waits = nullptr;  // outlives the communicator; null: waits are not logged
  bool gives_way = false;    // waits without spinning, as where ranks outnumber processors
};

// There are three paths, by size and by the memory of the tensors:
//
// - small: each rank copies the data that others need into its arrival line or its buffer, and all
//   wait at one barrier. Each rank then reads the data that it needs and computes its own result.
// - direct: all tensors that other ranks touch lie in the ranks' heaps. The ranks wait at a barrier
//   and exchange the heap offsets of their tensors. Each rank does its slice of the work, from all
//   inputs to all outputs, and they wait at a barrier again. A rank's traffic for an all_reduce is
//   twice the tensor's size.
// - staged: all other calls. Like small, with one chunk of the buffers at a time.
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
  absl::Status TakeDeferredError() override { return barrier_.TakeDeferredError(); }
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline) override;
  absl::StatusOr<bool> HasMessage(int peer) override { return mailbox_.HasMessage(peer); }
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline) override {
    return mailbox_.AwaitMessage(peers, deadline);
  }
  absl::Status ExchangeControlMessages(absl::Span<const Transfer> messages,
                                       Instant deadline) override;
  absl::StatusOr<bool> HasControlMessage(int peer) override {
    return control_mailbox_.HasMessage(peer);
  }
  void Drain(Instant deadline) override;
  void Abort(absl::string_view cause) override;

 private:
  // The stages of one operation's barriers.
  static constexpr int kPut = 0;
  static constexpr int kPutLate = 1;
  static constexpr int kReduced = 2;
  static constexpr int kDone = 3;

  // `size` elements from element `at` on, of each part.
  struct Chunk {
    int64_t at = 0;
    int64_t size = 0;
  };
  // The steps of a large operation. `direct` is the direct path; `put` and `take` are the staged
  // path.
  struct Paths {
    // Whether the inputs or the outputs must lie in heaps for the direct path.
    bool needs_inputs = false;
    bool needs_outputs = false;
    // How many chunks lie side by side in one buffer.
    int parts = 1;
    absl::FunctionRef<void()> direct;
    absl::FunctionRef<void(const Chunk&)> put;
    absl::FunctionRef<absl::Status(const Chunk&)> take;
  };
  // The collectives. Run has checked the arguments.
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

  // Copies `bytes` to where all ranks can read them, and waits at the barrier. deposit(rank) is
  // then a rank's copy, until the next deposit. `bytes_of_all` is the largest number of bytes of
  // any rank, where they differ.
  absl::Status Deposit(const FlatCall& call, const void* data, int64_t bytes, Instant deadline,
                       int64_t bytes_of_all = 0);
  absl::Status ArriveForBuffers(const FlatCall& call, int stage, Instant deadline);
  const char* deposit(int rank) const { return in_line_ ? barrier_.data(rank) : buffer(rank); }
  // Returns the deposits of all ranks, by rank, each from byte `offset` on.
  const std::vector<const void*>& Deposits(int64_t offset);
  // Like Deposits; this rank's own data, which it has not deposited, is at `own`.
  const std::vector<const void*>& DepositsAnd(const void* own, int64_t offset);

  absl::Status Large(const FlatCall& call, const void* input, void* output, const Paths& paths,
                     Instant deadline);
  enum class Agreed { kDirect, kStaged, kMixed };
  // Reads from the last barrier where the tensors of all ranks lie.
  absl::StatusOr<Agreed> ReadHeapOffsets(const FlatCall& call, const Paths& paths);
  Chunk FirstChunk(const FlatCall& call, const Paths& paths) const;

  // Copies into this rank's buffer, for others to read.
  void Put(void* to, const void* from, int64_t bytes);

  // A rank's share of `bytes`, cut between cache lines.
  struct Slice {
    int64_t begin = 0;
    int64_t size = 0;
  };
  Slice SliceOf(int rank, int64_t bytes) const;
  // Runs `body`, this rank's part of an operation, and chooses how it stores. The part stores
  // `bytes` that others read; the whole operation touches `touched` bytes.
  void ForOthers(int64_t bytes, int64_t touched, absl::FunctionRef<void(Stores)> body);
  // Like ForOthers, for an operation that divides `bytes` among the ranks and stores `copies` of
  // each byte in other ranks' memory. Runs `body` for each slice that this rank takes.
  void ForShare(int64_t bytes, int copies, int64_t touched,
                absl::FunctionRef<void(Slice, Stores)> body);
  // The tensors of the direct path, each from byte `offset` on.
  const std::vector<const void*>& Inputs(int64_t offset);
  const std::vector<void*>& Outputs(int64_t offset) { return OutputsBut(nullptr, offset); }
  // Like Outputs, without the output that is `input` itself.
  const std::vector<void*>& OutputsBut(const void* input, int64_t offset);
  // How an operation that touches `bytes` in all stores its results.
  Stores StoresOf(int64_t bytes) const;

  // Switches to the other buffer, for `bytes`.
  void NextBuffer(int64_t bytes);
  char* buffer(int rank) const { return space_.buffer(rank, which_) + at_; }

  const HostSpace space_;
  const RankHeaps heaps_;
  const std::vector<int> names_;
  const int rank_;
  const int64_t stream_from_;
  FutexWaiter waiter_;
  ArrivalBarrier barrier_;
  HostMailbox mailbox_;
  HostMailbox control_mailbox_;
  int which_ = 0;                       // the buffer of this rank that was used last
  int64_t at_ = 0;                      // where its data begins
  Stores taken_out_ = Stores::kCached;  // how data that was read from buffers is stored
  StoreChoice put_;                     // for data that goes into buffers
  StoreChoice direct_;                  // for data that goes into other ranks' tensors
  bool in_line_ = false;                // whether the last deposits are in arrival lines
  std::vector<const char*> inputs_;     // by rank, of the direct path
  std::vector<char*> outputs_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_
