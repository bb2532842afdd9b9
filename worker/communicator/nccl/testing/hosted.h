// A communicator with what it lives on, as one: for tests that hold nothing else of a rank.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_HOSTED_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_HOSTED_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "worker/communicator/communicator.h"

namespace cohort::worker {

// `communicator` ends before `host`.
class Hosted final : public Communicator {
 public:
  Hosted(std::unique_ptr<Communicator> host, std::unique_ptr<Communicator> communicator)
      : host_(std::move(host)), communicator_(std::move(communicator)) {}

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }

  absl::Status AllReduce(const void* input, void* output, int64_t count, DataType type,
                         const Reduction& reduction, Instant deadline) override {
    return communicator().AllReduce(input, output, count, type, reduction, deadline);
  }
  absl::Status Reduce(const void* input, void* output, int64_t count, DataType type,
                      const Reduction& reduction, int root, Instant deadline) override {
    return communicator().Reduce(input, output, count, type, reduction, root, deadline);
  }
  absl::Status Broadcast(const void* input, void* output, int64_t count, DataType type, int root,
                         Instant deadline) override {
    return communicator().Broadcast(input, output, count, type, root, deadline);
  }
  absl::Status BroadcastAhead(const void* input, void* output, int64_t count, DataType type,
                              int root, Instant deadline) override {
    return communicator().BroadcastAhead(input, output, count, type, root, deadline);
  }
  absl::Status TakeOverdue() override { return communicator().TakeOverdue(); }
  absl::Status AllGather(const void* input, void* output, int64_t count, DataType type,
                         Instant deadline) override {
    return communicator().AllGather(input, output, count, type, deadline);
  }
  absl::Status ReduceScatter(const void* input, void* output, int64_t count, DataType type,
                             const Reduction& reduction, Instant deadline) override {
    return communicator().ReduceScatter(input, output, count, type, reduction, deadline);
  }
  absl::Status AllToAll(const void* input, void* output, int64_t count, DataType type,
                        Instant deadline) override {
    return communicator().AllToAll(input, output, count, type, deadline);
  }
  absl::Status Gather(const void* input, void* output, int64_t count, DataType type, int root,
                      Instant deadline) override {
    return communicator().Gather(input, output, count, type, root, deadline);
  }
  absl::Status Scatter(const void* input, void* output, int64_t count, DataType type, int root,
                       Instant deadline) override {
    return communicator().Scatter(input, output, count, type, root, deadline);
  }
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline) override {
    return communicator().Exchange(transfers, deadline);
  }
  absl::StatusOr<bool> HasMessage(int peer) override { return communicator_->HasMessage(peer); }
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline) override {
    return communicator_->AwaitMessage(peers, deadline);
  }
  absl::Status ExchangeNotes(absl::Span<const Transfer> notes, Instant deadline) override {
    return communicator().ExchangeNotes(notes, deadline);
  }
  absl::StatusOr<bool> HasNote(int peer) override { return communicator_->HasNote(peer); }
  absl::Status Barrier(Instant deadline) override { return communicator().Barrier(deadline); }
  void Settle(Instant deadline) override { communicator_->Settle(deadline); }
  void Abort(absl::string_view cause) override { communicator_->Abort(cause); }

 private:
  // About to be called.
  Communicator& communicator() {
    communicator_->set_tag(tag());
    return *communicator_;
  }

  const std::unique_ptr<Communicator> host_;
  const std::unique_ptr<Communicator> communicator_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_HOSTED_H_
