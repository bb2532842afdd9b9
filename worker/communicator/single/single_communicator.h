// One rank alone: every verb is a copy.
#ifndef COHORT_WORKER_COMMUNICATOR_SINGLE_SINGLE_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_SINGLE_SINGLE_COMMUNICATOR_H_

#include "absl/base/thread_annotations.h"
#include "base/mutex.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

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
  absl::StatusOr<bool> HasMessage(int peer) override;
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline) override;
  absl::Status ExchangeNotes(absl::Span<const Transfer> notes, Instant deadline) override;
  absl::StatusOr<bool> HasNote(int peer) override;
  absl::Status Barrier(Instant deadline) override;
  void Abort(absl::string_view cause) override;

 private:
  absl::Status Run(Verb verb, const void* input, void* output, int64_t count, DataType type,
                   int root, const Reduction* reduction);

  Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SINGLE_SINGLE_COMMUNICATOR_H_
