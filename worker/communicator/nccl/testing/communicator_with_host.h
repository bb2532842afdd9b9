// A communicator together with the communicator that it uses, as one object: for tests that hold
// nothing else of a rank.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_COMMUNICATOR_WITH_HOST_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_COMMUNICATOR_WITH_HOST_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "worker/communicator/communicator.h"

namespace cohort::worker {

// `communicator` ends before `host`.
class CommunicatorWithHost final : public Communicator {
 public:
  CommunicatorWithHost(std::unique_ptr<Communicator> host,
                       std::unique_ptr<Communicator> communicator)
      : host_(std::move(host)), communicator_(std::move(communicator)) {}

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }

  absl::Status Run(const FlatCall& call, const void* input, void* output,
                   Instant deadline) override {
    return communicator_->Run(call, input, output, deadline);
  }
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                        MessageChannel channel) override {
    return communicator_->Exchange(transfers, deadline, channel);
  }
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers, Instant deadline,
                                           MessageChannel channel) override {
    return communicator_->AwaitMessage(peers, deadline, channel);
  }
  void Drain(Instant deadline) override { communicator_->Drain(deadline); }
  void Abort(absl::string_view cause) override { communicator_->Abort(cause); }

 private:
  const std::unique_ptr<Communicator> host_;
  const std::unique_ptr<Communicator> communicator_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_COMMUNICATOR_WITH_HOST_H_
