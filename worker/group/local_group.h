// A group of which this process is a rank.
#ifndef COHORT_WORKER_GROUP_LOCAL_GROUP_H_
#define COHORT_WORKER_GROUP_LOCAL_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/mutex.h"
#include "base/shm/heap.h"
#include "client/collective/group.h"
#include "client/rendezvous/process_group.h"
#include "worker/group/group_bootstrap.h"
#include "worker/group/tensor_verbs.h"

namespace cohort::worker {

struct LocalGroupOptions {
  // The seat: coordinator, name of the group, rank, world size, lease and so on.
  client::ProcessGroupOptions membership;
  // How ranks find each other. Without a heap: the process's.
  BootstrapOptions bootstrap;
  absl::Duration timeout = absl::Seconds(300);  // of calls without their own
};

// The calling thread executes its share of each operation; the coordinator is not asked. Calls of
// several threads take turns, in an order that only the caller can make the same on all ranks.
//
// A rank that dies is noticed by its connections, within milliseconds on the same host, and by the
// coordinator; calls of all others then end with ABORTED, naming it. Rejoin forms the next
// generation, with whoever comes.
class LocalGroup final : public client::Group {
 public:
  // Takes the seat, waits until the group is complete, and connects the ranks. Errors: those of
  // ProcessGroup::Create and FormCommunicator.
  static absl::StatusOr<std::unique_ptr<LocalGroup>> Create(LocalGroupOptions options);
  // Leaves.
  ~LocalGroup() override;

  // After ABORTED or DEADLINE_EXCEEDED: takes the seat in the next generation. Tensors stay valid.
  absl::Status Rejoin(absl::Duration timeout = absl::Seconds(60));

  // By rank: how this rank reaches it, such as "shared memory".
  const std::vector<std::string>& paths() const { return formed_.paths; }
  const std::string& why_not() const { return formed_.why_not; }
  client::ProcessGroup& membership() { return *membership_; }

  const std::string& name() const override { return membership_->group(); }
  int64_t generation() const override { return membership_->generation(); }
  int rank() const override { return membership_->rank(); }
  int size() const override { return membership_->world_size(); }

  absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape) override;

  absl::Status AllReduce(const Tensor& input, const Tensor& output, const Reduction& reduction,
                         const client::CallOptions& options) override;
  absl::Status Reduce(const Tensor& input, const Tensor& output, const Reduction& reduction,
                      int root, const client::CallOptions& options) override;
  absl::Status Broadcast(const Tensor& tensor, int root,
                         const client::CallOptions& options) override;
  absl::Status AllGather(const Tensor& input, const Tensor& output, int dim,
                         const client::CallOptions& options) override;
  absl::Status ReduceScatter(const Tensor& input, const Tensor& output, int dim,
                             const Reduction& reduction,
                             const client::CallOptions& options) override;
  absl::Status AllToAll(const Tensor& input, const Tensor& output,
                        const client::CallOptions& options) override;
  absl::Status Gather(const Tensor& input, const Tensor& output, int dim, int root,
                      const client::CallOptions& options) override;
  absl::Status Scatter(const Tensor& input, const Tensor& output, int dim, int root,
                       const client::CallOptions& options) override;
  absl::Status AllGatherV(const Tensor& input, const Tensor& output, int dim,
                          const client::Sizes& sizes, const client::CallOptions& options) override;
  absl::Status ReduceScatterV(const Tensor& input, const Tensor& output, int dim,
                              const client::Sizes& sizes, const Reduction& reduction,
                              const client::CallOptions& options) override;
  absl::Status GatherV(const Tensor& input, const Tensor& output, int dim,
                       const client::Sizes& sizes, int root,
                       const client::CallOptions& options) override;
  absl::Status AllToAllV(const Tensor& input, const client::Sizes& input_sizes,
                         const Tensor& output, const client::Sizes& output_sizes,
                         const client::CallOptions& options) override;
  absl::StatusOr<client::Sizes> ExchangeSizes(int64_t own,
                                              const client::CallOptions& options) override;
  absl::Status Exchange(absl::Span<const client::TensorTransfer> transfers,
                        const client::CallOptions& options) override;

  absl::Status SendObject(absl::string_view object, int destination,
                          const client::CallOptions& options) override;
  absl::StatusOr<std::string> ReceiveObject(int source,
                                            const client::CallOptions& options) override;
  absl::StatusOr<std::string> BroadcastObject(absl::string_view object, int root,
                                              const client::CallOptions& options) override;
  absl::StatusOr<std::vector<std::string>> AllGatherObjects(
      absl::string_view object, const client::CallOptions& options) override;
  absl::Status Barrier(const client::CallOptions& options) override;
  void Abort(const absl::Status& cause) override;

 private:
  explicit LocalGroup(LocalGroupOptions options) : options_(std::move(options)) {}

  absl::Status Form(absl::Duration timeout);
  // What the generation that ends had.
  void Drop();
  void OnEvent(const client::GroupEvent& event);
  Instant DeadlineOf(const client::CallOptions& options) const;
  client::RoundOptions RoundOf(const client::CallOptions& options) const;

  LocalGroupOptions options_;
  std::string coordinator_address_;
  std::unique_ptr<client::ProcessGroup> membership_;

  Mutex call_mutex_;  // held by the call at work
  FormedCommunicator formed_;
  std::unique_ptr<TensorVerbs> verbs_;

  // What may be told to end, from the connection's thread; null while there is none.
  Mutex end_mutex_;
  Communicator* current_ ABSL_GUARDED_BY(end_mutex_) = nullptr;
  int64_t current_generation_ ABSL_GUARDED_BY(end_mutex_) = 0;
  std::string ended_ ABSL_GUARDED_BY(end_mutex_);  // why, of the generation
  int64_t ended_generation_ ABSL_GUARDED_BY(end_mutex_) = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_LOCAL_GROUP_H_
