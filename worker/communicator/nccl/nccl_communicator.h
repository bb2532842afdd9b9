// Ranks with one GPU each, over NCCL.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/threads/mutex.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/device_progress.h"
#include "worker/communicator/nccl/agreement/issue_order.h"
#include "worker/communicator/nccl/agreement/nccl_operation_log.h"
#include "worker/communicator/nccl/agreement/operation_agreement.h"
#include "worker/communicator/nccl/agreement/operation_log_line.h"
#include "worker/communicator/nccl/api/nccl_api.h"
#include "worker/communicator/nccl/clique/nccl_clique.h"
#include "worker/communicator/nccl/clique/nccl_memory.h"
#include "worker/communicator/nccl/nccl_call.h"
#include "worker/communicator/nccl/watchdog/nccl_in_flight.h"
#include "worker/communicator/nccl/watchdog/nccl_watchdog.h"
#include "worker/cuda/streams/event.h"
#include "worker/cuda/streams/stream.h"

namespace cohort::worker {

// How ranks find out that they called different operations. NCCL does not tell: its devices hang,
// or take one operation for another.
enum class NcclAgreement {
  // They do not. A difference, or a missing rank, is found when the timeout ends.
  kOff,
  // Operations that block begin with a barrier on the host; operations on streams do not. The
  // operation log compares them a few milliseconds later, and so does the next operation with a
  // host barrier. A difference then cannot be undone, and ends the group.
  kAsync,
  // All operations have a host barrier: a difference is found before anything is enqueued, and the
  // group stays usable.
  kStrict,
};

struct NcclCommunicatorInit {
  std::shared_ptr<NcclApi> nccl;
  int device = 0;
  int compute_capability = 0;  // of the device: 90 is 9.0
  // Made by members and the same on all ranks, in the same order: see NewNcclId.
  std::vector<std::string> ids;
  std::string name;  // in NCCL's own logs
  // A communicator of the same ranks, by host memory or sockets; outlives it. Other callers use it
  // between the calls, never at the same time.
  Communicator* host = nullptr;
  // The same on all ranks.
  NcclAgreement agreement = NcclAgreement::kAsync;
  // Gets the device's progress with this rank's calls; may be null. It outlives the group that is
  // formed.
  DeviceProgress* progress = nullptr;
  // An operation log of the same ranks, for this communicator alone, if the ranks share memory; all
  // ranks have it, or none has. With it a difference between operations on streams is found soon.
  // All ranks learn immediately that a rank gave up, and errors name the ranks that have not come
  // to an operation.
  std::shared_ptr<const NcclOperationLog> operation_log;
};

struct NcclCallOptions {
  // A stream of the group's device; null: its default stream.
  cudaStream_t stream = nullptr;
  // The longest time that the operation may take on the device, including the wait for other ranks.
  // It counts from when the device comes to the operation, not from now.
  absl::Duration timeout = absl::Minutes(10);
  // The stream is being captured for an NcclReplay. Ranks will agree on the replay, not on this
  // call.
  bool is_recorded = false;
};

// Calls of a group that Enqueue put on a stream that was being captured.
struct NcclReplay {
  int calls = 0;
  uint32_t digest = 0;  // of the calls: the same on all ranks
  std::function<absl::Status(cudaStream_t)> launch;
};

// All memory is the device's, or memory that the device reaches. Ranks agree on an operation
// through the host before it begins. So a difference, a rank that does not come and a rank that is
// gone give the same errors as in other backends. An operation that then fails or stalls on the
// devices ends the group: the group is revoked, and no rank waits for it beyond the deadline.
//
// In this process, operations of all groups on a device are issued one after the other, under one
// lock. If several groups are on the same devices, all ranks issue the operations with a host
// barrier in the same order, whichever threads call them. For messages, and for operations on
// streams without a host barrier, the callers must keep that order.
//
// Differences from other backends: nccl_types.h; bitwise reductions and those of 16-bit integers
// are UNIMPLEMENTED.
class NcclCommunicator final : public Communicator, private NcclWatchdog::Watched {
 public:
  // All ranks call it. Errors: DEADLINE_EXCEEDED (not all ranks have come, or NCCL does not get
  // on), ABORTED, those of CUDA and NCCL.
  static absl::StatusOr<std::unique_ptr<NcclCommunicator>> Form(NcclCommunicatorInit init,
                                                                Instant deadline);
  // Waits for other ranks for a moment at most.
  ~NcclCommunicator() override;

  // The stream of the operations that block, which run in the order of the calls. Work that is
  // enqueued on it runs between them.
  cudaStream_t stream() const { return stream_.get(); }

  // Whether operations that block have a host barrier before they begin.
  bool has_host_barrier() const { return HasHostBarrier(/*on_stream=*/false); }

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  absl::Status Run(const FlatCall& call, const void* input, void* output,
                   Instant deadline) override;
  // Control messages go through the host, on the channel by which ranks agree on messages.
  absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                        MessageChannel channel = MessageChannel::kData) override;
  // Sees messages of devices; with kOff these are not announced.
  absl::StatusOr<MessageInfo> AwaitMessage(
      absl::Span<const int> peers, Instant deadline,
      MessageChannel channel = MessageChannel::kData) override {
    return channel == MessageChannel::kControl ? host_->AwaitMessage(peers, deadline, channel)
                                               : agreement_.AwaitOffer(peers, deadline);
  }
  void Drain(Instant deadline) override { host_->Drain(deadline); }
  void Abort(absl::string_view cause) override;

  // --- On a caller's stream. These methods return once the work is enqueued there. Work that is
  // enqueued on the stream after it finds the result; the host does not wait. All ranks enqueue the
  // same operations in the same order. The operations of one group run in that order, whatever
  // streams they are on.
  //
  // A later failure ends the group: the stream goes on, with undefined outputs, and the next call
  // returns the cause (ABORTED, or INVALID_ARGUMENT if ranks had enqueued different operations). A
  // thread of this process detects it without a call: an operation that takes longer than its
  // timeout, a failure of NCCL, or an Abort.

  // Enqueues a collective, but not a barrier. Returns at `deadline` at the latest: the first
  // operation of a group waits for the others to connect, the device takes a limited number of
  // operations, and kStrict waits for all ranks. Errors: those of collectives, and
  // RESOURCE_EXHAUSTED (the watchdog's thread could not start). Only this rank gets the latter;
  // nothing is on the stream, and the call may be repeated.
  absl::Status Enqueue(const FlatCall& call, const void* input, void* output,
                       const NcclCallOptions& options, Instant deadline);
  // Like Exchange. Only kStrict compares messages. Otherwise both sides give the messages between
  // them in the same order, and a message without its other side times out.
  absl::Status Enqueue(absl::Span<const Transfer> transfers, const NcclCallOptions& options,
                       Instant deadline);
  // Takes the place of an operation on a stream that this rank cannot enqueue, because of a wrong
  // argument. If other ranks enqueue theirs, the group ends on all ranks with `why`, or stays
  // usable with kStrict; if all refuse it, the group goes on. Groups over several hosts find it at
  // the next host barrier. Errors: as Check.
  absl::Status Refuse(absl::string_view why, Instant deadline);
  // Enqueues all calls of the replay as one operation: ranks agree on it, and the watchdog watches
  // it.
  absl::Status Enqueue(const NcclReplay& replay, const NcclCallOptions& options, Instant deadline);
  // Runs the replay and blocks until it is done, like a collective.
  absl::Status Run(const NcclReplay& replay, Instant deadline);
  // Whether the group works, as far as this rank knows; does not wait. Errors: why the group has
  // ended. If NCCL has failed, this call returns OK for a moment, in which the rank that is gone
  // may become known.
  absl::Status Check();
  // Waits until all work that was enqueued so far is done. Errors: DEADLINE_EXCEEDED (the group
  // stays usable), and those of Check.
  absl::Status Await(Instant deadline);

  // --- Memory that NCCL moves from and to without copies. All ranks register theirs, or none does.
  // In an operation the memory of all ranks is registered, or that of none, since NCCL knows no
  // bounds otherwise. Ranks compare this like the rest of an operation; for messages, the callers
  // ensure it.

  // Allocates memory of the device and registers it. All ranks call it. If all ranks give the same
  // size, and every device reaches every other, the memory is a symmetric window. In an operation
  // the memory of all ranks then lies at the same offset in its window, which is compared, too.
  // Errors: those of NcclMemory and NCCL, naming the rank; all ranks get them, and the group stays
  // usable.
  absl::StatusOr<std::shared_ptr<NcclMemory>> Allocate(size_t bytes, Instant deadline);
  // Registers memory that was allocated for another group.
  absl::Status Register(std::shared_ptr<NcclMemory> memory, Instant deadline);
  // Registers the memory if each rank has some; null: this rank has none, and no rank registers
  // any. Returns whether it is registered.
  absl::StatusOr<bool> RegisterWhereAllHave(std::shared_ptr<NcclMemory> memory, Instant deadline);
  // This rank alone calls it. Waits until nothing is in flight. The memory stays as it is. Memory
  // that is still registered when the group ends is deregistered then. Errors: INVALID_ARGUMENT (it
  // is not registered), those of Await.
  absl::Status Deregister(const NcclMemory& memory, Instant deadline);

 private:
  // How often a rank looks at a working device alone, before it also asks NCCL and the other ranks.
  static constexpr int kLooksAlone = 64;
  // How long a rank waits for the cause when NCCL has failed. The death of a process is known
  // within milliseconds; that of a host takes too long to wait for.
  static constexpr absl::Duration kBlame = absl::Milliseconds(300);

  NcclCommunicator(NcclCommunicatorInit init, NcclOperationLog own_log, cuda::Stream stream,
                   cuda::Event done);
  // Checks that all ranks were given the same mode, and an operation log or none.
  absl::Status AgreeOnInit(Instant deadline);

  absl::Status RunBarrier(const FlatCall& call, Instant deadline);
  // Issues `work`, which has been posted, to this group's own stream, and waits until it is done.
  absl::Status RunPosted(const NcclWork& work, Instant deadline,
                         absl::FunctionRef<absl::Status()> issue);
  // Returns when NCCL has put the work on `stream`.
  absl::Status Issue(const FlatCall& call, NcclOperands operands, const void* input, void* output,
                     cudaStream_t stream, Instant deadline);
  absl::Status Issue(const NcclReplay& replay, cudaStream_t stream, Instant deadline);
  absl::Status IssueMessages(absl::Span<const Transfer> transfers, const std::vector<size_t>& which,
                             cudaStream_t stream, Instant deadline);
  // Issues `work` between two marks on the caller's stream. `agree` agrees with the other ranks,
  // and returns the number of the work.
  absl::Status Launch(NcclWork work, const NcclCallOptions& options, Instant deadline,
                      absl::FunctionRef<absl::StatusOr<int64_t>()> agree,
                      absl::FunctionRef<absl::Status()> issue);
  absl::Status AwaitRoom(Instant deadline);
  // Called before anything is on a stream. The watchdog's thread may fail to start, and without it
  // a hanging operation would never be ended.
  absl::Status BeWatched();
  OperationLogLine LineFor(const FlatCall& call, const void* input, const void* output) const;
  uint32_t Registered(const FlatCall& call, const void* input, const void* output) const;
  absl::StatusOr<std::shared_ptr<NcclMemory>> RegisterOnAll(
      absl::StatusOr<std::shared_ptr<NcclMemory>> memory, Instant deadline);
  // Posts the next operation of this rank. Returns its number.
  int64_t Post(OperationLogLine line, bool on_stream);
  // Whether all ranks wait at a barrier before the operation.
  bool HasHostBarrier(bool on_stream) const {
    return mode_ == NcclAgreement::kStrict || (mode_ == NcclAgreement::kAsync && !on_stream);
  }
  // Waits until an operation at whose barrier all ranks arrived comes next, among those of other
  // groups on the device. The ticket is held until the operation is issued. Absent: there are no
  // other groups, or no host barrier.
  absl::StatusOr<std::optional<IssueOrder::Ticket>> TakeTicket(bool arrived, Instant deadline);
  // Waits at the host barrier of the operation, if HasHostBarrier says so.
  absl::Status HostBarrier(const OperationLogLine& line, bool on_stream, Instant deadline);
  // Text for an error: the ranks that have not come to an operation, or are not done with it.
  std::string Others(const NcclWork& work) const;
  // Whether something is in flight; does not wait. Errors: the cause that ends the group. If it is
  // one for which Blame waits, this returns true for that time first.
  absl::StatusOr<bool> LookAtFlight();
  absl::StatusOr<bool> FindInFlight();
  // The error that LookAtFlight has seen and not returned yet.
  absl::Status Suspected();
  // Whether another rank's end may be the cause.
  bool IsBlamed(const absl::Status& status) const;
  absl::Status RunIssued(const char* call, Instant deadline,
                         absl::FunctionRef<ncclResult_t()> issue);
  // Waits until the device has done the work that was issued.
  absl::Status AwaitDevice(const NcclWork& work, Instant deadline);
  // OK, or why this group has ended. Broken: as far as this rank knows. Standing: as far as other
  // ranks tell it. Stand: like Standing, and ends the operations in flight here, too.
  absl::Status Broken();
  absl::Status Standing();
  absl::Status Stand();
  // Why NCCL fails: names the rank that is gone, if that becomes known within a moment. Otherwise
  // returns NCCL's error; NCCL may see a closed connection before any rank knows whose it is.
  absl::Status Blame(const absl::Status& status);
  // Ends the group, on this rank and the others, because work failed on its way to the device or on
  // it. Returns `status`, or the cause if the group had ended before. Any thread may call it.
  absl::Status Break(const absl::Status& status,
                     NcclClique::Wait wait = NcclClique::Wait::kBriefly);
  // Called by the watchdog.
  bool Look() override;

  const std::shared_ptr<NcclApi> nccl_;
  const int compute_capability_;
  Communicator* const host_;
  const cuda::Stream stream_;
  cuda::Event done_;
  const NcclAgreement mode_;
  const IssueOrder::IssuingGroup issuing_group_;
  uint64_t key_ = 0;  // the group's key in the issue order
  DeviceProgress* const progress_;
  // The operation log of NcclCommunicatorInit, or one of this rank alone.
  const std::shared_ptr<const NcclOperationLog> operation_log_;
  const bool log_is_shared_;
  Agreement agreement_;
  NcclInFlight flight_;
  uint64_t chain_ = 0;  // a digest of the entries that were posted
  std::unique_ptr<NcclClique> clique_;
  int looks_at_ = 0;  // the rank that Standing asked last
  bool is_watched_ = false;

  Mutex mutex_;
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  absl::Status suspected_ ABSL_GUARDED_BY(mutex_);
  Instant suspected_at_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_NCCL_COMMUNICATOR_H_
