// A group of NCCL's as its verbs are on one stream of the caller's.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_STREAM_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_STREAM_COMMUNICATOR_H_

#include <cstdint>

#include "worker/communicator/communicator.h"
#include "worker/communicator/nccl/nccl_communicator.h"

namespace cohort::worker {

// Verbs return once they are enqueued: see NcclCommunicator::Enqueue. A barrier is of the host's
// threads, as ever. Cheap to make: for the time of a call.
class NcclStreamCommunicator final : public Communicator {
 public:
  // `group` outlives it.
  NcclStreamCommunicator(NcclCommunicator* group, const NcclCallOptions& options)
      : group_(*group), options_(options) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

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
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline) override;
  absl::StatusOr<bool> HasMessage(int peer) override { return group_.HasMessage(peer); }
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline) override {
    return group_.AwaitMessage(peers, deadline);
  }
  absl::Status ExchangeNotes(absl::Span<const Transfer> notes, Instant deadline) override {
    return group_.ExchangeNotes(notes, deadline);
  }
  absl::StatusOr<bool> HasNote(int peer) override { return group_.HasNote(peer); }
  absl::Status Barrier(Instant deadline) override;
  absl::Status TakeOverdue() override { return group_.TakeOverdue(); }
  void Abort(absl::string_view cause) override { group_.Abort(cause); }

 private:
  absl::Status Enqueue(Verb verb, const void* input, void* output, int64_t count, DataType type,
                       int root, const Reduction& reduction, Instant deadline);

  NcclCommunicator& group_;
  const NcclCallOptions options_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_STREAM_COMMUNICATOR_H_
