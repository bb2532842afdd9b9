// A group of one rank: every collective is a copy.
#ifndef COHORT_WORKER_COMMUNICATOR_SINGLE_SINGLE_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_SINGLE_SINGLE_COMMUNICATOR_H_

#include "absl/base/thread_annotations.h"
#include "base/threads/mutex.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

class SingleCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }

  absl::Status Run(const FlatCall& call, const void* input, void* output,
                   Instant deadline) override;
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                        MessageChannel channel) override;
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers, Instant deadline,
                                           MessageChannel channel) override;
  void Drain(Instant) override {}
  void Abort(absl::string_view cause) override;

 private:
  absl::Status CheckNotAborted();

  Mutex mutex_;
  absl::Status aborted_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SINGLE_SINGLE_COMMUNICATOR_H_
