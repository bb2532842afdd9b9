// An NcclCommunicator whose collectives run on one stream of the caller.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_STREAM_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_STREAM_COMMUNICATOR_H_

#include <cstdint>

#include "worker/communicator/communicator.h"
#include "worker/communicator/nccl/nccl_communicator.h"

namespace cohort::worker {

// Collectives return once they are enqueued: see NcclCommunicator::Enqueue. A barrier is one of the
// ranks' threads, as in other communicators. Cheap to make for one call.
class NcclStreamCommunicator final : public Communicator {
 public:
  // `group` outlives it.
  NcclStreamCommunicator(NcclCommunicator* group, const NcclCallOptions& options)
      : group_(*group), options_(options) {}

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }

  absl::Status Run(const FlatCall& call, const void* input, void* output,
                   Instant deadline) override {
    // A barrier is one of the ranks' threads.
    if (call.collective == Collective::kBarrier) return group_.Run(call, input, output, deadline);
    return group_.Enqueue(call, input, output, options_, deadline);
  }
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                        MessageChannel channel) override {
    return channel == MessageChannel::kControl ? group_.Exchange(transfers, deadline, channel)
                                               : group_.Enqueue(transfers, options_, deadline);
  }
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers, Instant deadline,
                                           MessageChannel channel) override {
    return group_.AwaitMessage(peers, deadline, channel);
  }
  void Drain(Instant deadline) override { group_.Drain(deadline); }
  void Abort(absl::string_view cause) override { group_.Abort(cause); }

 private:
  NcclCommunicator& group_;
  const NcclCallOptions options_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_STREAM_COMMUNICATOR_H_
