// The three algorithms of data between ranks that share memory: small, direct and staged.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_HOST_ALGORITHMS_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_HOST_ALGORITHMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/collective/collective.h"
#include "worker/communicator/host/host_mailbox.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"
#include "worker/communicator/host/reduce/store_mode_choice.h"
#include "worker/communicator/host/shared/arrival_barrier.h"
#include "worker/communicator/host/shared/futex_waiter.h"
#include "worker/communicator/host/shared/host_shared_memory.h"

namespace cohort::worker {

enum class Algorithm : uint8_t {
  // Each rank copies the data that others need into its arrival line or its buffer, and all meet
  // once. Each rank then reads the data that it needs and computes its own result.
  kSmall,
  // All tensors that other ranks touch lie in the ranks' heaps. The ranks wait at a barrier and
  // exchange the
  // places of their tensors. Each rank does its slice of the work, from all inputs to all outputs,
  // and they wait at a barrier again. A rank's traffic for an all_reduce is twice the tensor's
  // size.
  kDirect,
  // All other calls. Like small, with one chunk of the buffers at a time.
  kStaged,
};

// The barriers of one collective.
enum class Stage : int { kPut = 0, kPutLate = 1, kReduced = 2, kDone = 3 };

// `size` elements from element `at` on, of each part.
struct Chunk {
  int64_t at = 0;
  int64_t size = 0;
};

// A range of bytes.
struct Slice {
  int64_t begin = 0;
  int64_t size = 0;
};

// One rank's side of all algorithms. A collective chooses its algorithm and then uses the methods
// of that algorithm alone.
class HostAlgorithms {
 public:
  // The references outlive this object. `names`: the ranks' numbers in errors, by rank.
  // `stream_from`: see HostMemory.
  HostAlgorithms(const HostSharedMemory& space, const RankHeaps& heaps,
                 const std::vector<int>& names, const FutexWaiter& waiter, int rank,
                 std::optional<int64_t> stream_from);

  ArrivalBarrier& barrier() { return barrier_; }
  absl::Status ArriveAndWait(const FlatCall& call, Stage stage, Instant deadline) {
    return barrier_.ArriveAndWait(call, static_cast<int>(stage), deadline);
  }

  // Whether `call` takes the small algorithm.
  bool IsSmall(const FlatCall& call) const {
    return call.count * SizeOf(call.type) * Parts(call) <= space_.small_bytes();
  }
  // Returns the algorithm of a call that is not small: kDirect or kStaged. Where all ranks may take
  // the direct algorithm, they wait at the barrier. Errors: as ArrivalBarrier::ArriveAndWait;
  // ABORTED (a rank names memory that it does not have).
  absl::StatusOr<Algorithm> ChooseLarge(const FlatCall& call, const void* input, void* output,
                                        Instant deadline);

  // --- The small algorithm.

  // Copies `bytes` to where all ranks can read them, and meets. deposit(rank) is then a rank's
  // copy, until the next deposit. `bytes_of_all` is the largest number of bytes of any rank, where
  // they differ.
  absl::Status Deposit(const FlatCall& call, const void* data, int64_t bytes, Instant deadline,
                       int64_t bytes_of_all = 0);

  // --- The small and the staged algorithm.

  const char* deposit(int rank) const { return in_line_ ? barrier_.data(rank) : buffer(rank); }
  // Returns the deposits of all ranks, by rank, each from byte `offset` on.
  const std::vector<const void*>& Deposits(int64_t offset = 0);
  // How data that was read from deposits is stored.
  Stores taken_out() const { return taken_out_; }

  // --- The staged algorithm. For each chunk of the call:
  //
  //   for (Chunk chunk = First(call); chunk.size > 0; chunk = Next(call, chunk)) {
  //     Put(...);  // what other ranks need, into buffer(rank)
  //     COHORT_RETURN_IF_ERROR(ArriveForChunk(call, chunk, deadline));
  //     ...        // reads deposit(...) of the other ranks
  //   }

  Chunk First(const FlatCall& call) const;
  Chunk Next(const FlatCall& call, const Chunk& chunk);
  char* buffer(int rank) const { return space_.buffer(rank, which_) + at_; }
  // Copies into this rank's buffer, for others to read.
  void Put(void* to, const void* from, int64_t bytes);
  absl::Status ArriveForChunk(const FlatCall& call, const Chunk& chunk, Instant deadline);
  // Like Deposits; this rank's own data, which it has not put into its buffer, is at `own`.
  const std::vector<const void*>& DepositsAnd(const void* own, int64_t offset);
  // A rank's share of `bytes`, cut between cache lines.
  Slice SliceOf(int rank, int64_t bytes) const;
  // How a rank stores results into its buffer.
  Stores put_stores() const { return put_.best(); }

  // --- The direct algorithm. It ends with a barrier at Stage::kDone.

  // The tensors of a rank.
  const char* input(int rank) const { return inputs_[static_cast<size_t>(rank)]; }
  char* output(int rank) const { return outputs_[static_cast<size_t>(rank)]; }
  // The tensors of all ranks, each from byte `offset` on.
  const std::vector<const void*>& Inputs(int64_t offset);
  const std::vector<void*>& Outputs(int64_t offset) { return OutputsBut(nullptr, offset); }
  // Like Outputs, without the output that is `input` itself.
  const std::vector<void*>& OutputsBut(const void* input, int64_t offset);
  // How an operation that touches `bytes` in all stores its results.
  Stores StoresOf(int64_t bytes) const {
    return bytes >= stream_from_ ? Stores::kStreaming : Stores::kCached;
  }
  // Runs `body`, this rank's part of an operation, and chooses how it stores. The part stores
  // `bytes` that others read; the whole operation touches `touched` bytes.
  void ForOthers(int64_t bytes, int64_t touched, absl::FunctionRef<void(Stores)> body);
  // Like ForOthers, for an operation that divides `bytes` among the ranks and stores `copies` of
  // each byte in other ranks' memory. Runs `body` for each slice that this rank takes.
  void ForShare(int64_t bytes, int copies, int64_t touched,
                absl::FunctionRef<void(Slice, Stores)> body);

 private:
  int size() const { return space_.ranks(); }
  // Whether each rank gets a part of its own of what the ranks bring. Then other ranks do not write
  // its output in the direct algorithm.
  static bool Scatters(const FlatCall& call) {
    return call.collective == Collective::kReduceScatter ||
           call.collective == Collective::kAllToAll || call.collective == Collective::kScatter;
  }
  // Whether each rank's part lands in one place. Then other ranks do not read its input on the
  // direct algorithm.
  static bool Gathers(const FlatCall& call) {
    return call.collective == Collective::kAllGather || call.collective == Collective::kGather;
  }
  // How many parts of `count` elements lie side by side in a rank's buffer.
  int Parts(const FlatCall& call) const { return Scatters(call) ? size() : 1; }

  // The places of a rank's tensors: offsets in its heap, or kElsewhere. If the rank has no such
  // tensor, its place may be anything.
  struct HeapOffsets {
    int64_t input;
    int64_t output;
  };
  static constexpr int64_t kElsewhere = -1;
  // Whether all tensors that other ranks touch in the direct algorithm lie in the rank's heap.
  static bool AllowDirect(const FlatCall& call, const HeapOffsets& offsets) {
    return (Gathers(call) || offsets.input != kElsewhere) &&
           (Scatters(call) || offsets.output != kElsewhere);
  }
  // Meets and reads where the tensors of all ranks lie. Returns how many ranks allow the direct
  // algorithm.
  absl::StatusOr<int> ArriveAndLearnOffsets(const FlatCall& call, Instant deadline);

  absl::Status ArriveForBuffers(const FlatCall& call, Stage stage, Instant deadline);
  // Switches to the other buffer, for `bytes`.
  void NextBuffer(int64_t bytes);

  const HostSharedMemory& space_;
  const RankHeaps& heaps_;
  const std::vector<int>& names_;
  const FutexWaiter& waiter_;
  const int rank_;
  const int64_t stream_from_;
  ArrivalBarrier barrier_;
  int which_ = 0;                       // the buffer of this rank that was used last
  int64_t at_ = 0;                      // where its data begins
  bool in_line_ = false;                // whether the last deposits are in arrival lines
  bool put_late_ = false;               // whether this rank has met without putting its first chunk
  Stores taken_out_ = Stores::kCached;  // how data that was read from buffers is stored
  StoreModeChoice put_;                 // for data that goes into buffers
  StoreModeChoice direct_;              // for data that goes into other ranks' tensors
  std::vector<const char*> inputs_;     // by rank, of the direct algorithm
  std::vector<char*> outputs_;
  std::vector<const void*> from_;
  std::vector<void*> to_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_ALGORITHMS_H_
