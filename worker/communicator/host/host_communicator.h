// Ranks that share memory.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/host/host_space.h"
#include "worker/communicator/host/meeting.h"

namespace cohort::worker {

// Data of any memory passes through the ranks' buffers in the space, a chunk at a time: each rank
// puts in what others need, all meet, each takes what it needs. The calling thread does its own
// share; there is no other. Buffers alternate, so that one meeting for each chunk is enough.
class HostCommunicator final : public Communicator {
 public:
  // `space` was made for all ranks of the communicator.
  HostCommunicator(HostSpace space, int rank);

  int rank() const override { return rank_; }
  int size() const override { return space_.ranks(); }

  absl::Status AllReduce(const void* input, void* output, int64_t count, DataType type,
                         const Reduction& reduction, Instant deadline) override;
  absl::Status Reduce(const void* input, void* output, int64_t count, DataType type,
                      const Reduction& reduction, int root, Instant deadline) override;
  absl::Status Broadcast(const void* input, void* output, int64_t count, DataType type, int root,
                         Instant deadline) override;
  absl::Status AllGather(const void* input, void* output, int64_t count, DataType type,
                         Instant deadline) override;
  absl::Status ReduceScatter(const void* input, void* output, int64_t count, DataType type,
                             const Reduction& reduction, Instant deadline) override;
  absl::Status AllToAll(const void* input, void* output, int64_t count, DataType type,
                        Instant deadline) override;
  absl::Status Gather(const void* input, void* output, int64_t count, DataType type, int root,
                      Instant deadline) override;
  absl::Status Scatter(const void* input, void* output, int64_t count, DataType type, int root,
                       Instant deadline) override;
  absl::Status Barrier(Instant deadline) override;
  void Abort(const absl::Status& cause) override;

 private:
  // `size` elements from element `at` on, of each part.
  struct Chunk {
    int64_t at = 0;
    int64_t size = 0;
  };

  // For each chunk of the operation's elements: `put` fills this rank's buffer, all meet, and
  // `take` reads the buffers. `parts`: how many chunks lie side by side in one buffer.
  absl::Status Exchange(const Operation& operation, int parts, Instant deadline,
                        const std::function<void(const Chunk&)>& put,
                        const std::function<absl::Status(const Chunk&)>& take);

  char* buffer(int rank) const { return space_.buffer(rank, which_); }
  // Of all ranks in order, `offset` bytes into the buffer.
  const std::vector<const void*>& Buffers(int64_t offset);

  const HostSpace space_;
  const int rank_;
  Meeting meeting_;
  int which_ = 0;
  std::vector<const void*> buffers_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_HOST_COMMUNICATOR_H_
