// A group of ranks, seen from one rank: its rank and peers, collectives on tensors, messages,
// barriers and objects.
//
//   std::unique_ptr<client::Group> group = ...;  // worker::LocalGroup, worker::AttachedGroup or
//                                                // client::RemoteGroup; each runs the same calls
//   Tensor gradients = *group->Allocate(DataType::kF32, {1024});
//   absl::Status status = group->AllReduce(gradients, gradients, {ReduceOp::kSum});
#ifndef COHORT_CLIENT_COLLECTIVE_GROUP_H_
#define COHORT_CLIENT_COLLECTIVE_GROUP_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "base/collective/collective_call.h"
#include "base/collective/message_info.h"
#include "base/collective/reduction.h"
#include "base/tensor/tensor.h"
#include "client/collective/peer_stats.h"
#include "client/collective/sequence.h"

namespace cohort::client {

// By rank: how many elements each rank has along the dimension of the call.
using Sizes = std::vector<int64_t>;

struct CallOptions {
  // The longest time that the call may take. Absent: the group's timeout.
  std::optional<absl::Duration> timeout;
  // For tensors on this rank's GPU: a cudaStream_t of this process; null is the default stream. The
  // call returns once its work is enqueued; work enqueued on the stream after it sees the result.
  // The group's work on several streams runs in the order of the calls. The timeout then limits the
  // work on the device, from when its turn comes. The next call, and AwaitStreams, return an error
  // of the work. Absent: the call blocks.
  std::optional<void*> stream;
};

// One tensor to a peer, or one from it.
struct TensorTransfer {
  bool sends = false;
  int peer = 0;
  Tensor tensor;
};

// A copy on this rank.
struct TensorCopy {
  Tensor from;
  Tensor to;
};

// Counts what a collective has moved.
void CountCollective(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                     PeerCounters& peers);
// Counts what an Exchange has moved.
void CountTransfers(absl::Span<const TensorTransfer> transfers, PeerCounters& peers);

// Rules of all collectives
//
// - All ranks of the group call the same collectives in the same order, with the same type, shape,
//   root and reduction. Only ragged collectives let the extent along `dim` differ. A call blocks
//   until its tensors may be used again, at most for its timeout.
// - `dim` is -n..n-1; a negative one counts from the end. Roots and peers are ranks in the group.
// - Inputs and outputs may have any strides. Contiguous tensors from Allocate, on all ranks, are
//   the fast case.
// - All tensors of a call are in host memory, or all are on this rank's device(), on all ranks
//   alike.
// - The call alone writes its outputs. Outputs do not overlap inputs, unless they are the very same
//   elements and the collective says "in place".
// - Tensors without elements, and groups of one rank, are legal everywhere.
// - Floating types of 8 and 16 bits accumulate in f32 in rank order and are rounded once. All ranks
//   get the same bits.
//
// Errors of all collectives
//
//   INVALID_ARGUMENT    Ranks called different collectives: all ranks get this error, which names
//                       two ranks that differ, and the group stays usable. Or this rank's tensors,
//                       root or dimension do not fit the collective: all ranks get the error, which
//                       names this rank, if the call blocks; on streams and for messages only this
//                       rank does. In host memory, the root of a broadcast of a few KiB waits for
//                       no other rank, and the other ranks wait only for the root. A rank whose call
//                       was wrong then fails; ranks may have returned before. All ranks get the
//                       error from one later call, which no rank runs: the next one that waits for
//                       all ranks, or else the small broadcast 64 calls later.
//   DEADLINE_EXCEEDED   Some ranks did not call in time; the error names them. The group is broken.
//   ABORTED             A rank is lost, gave up or aborted, or the generation ended; names the rank
//                       and the cause. Call Rejoin. Or a rank that this call needs has left in
//                       order: calls of the other ranks among themselves go on.
//   RESOURCE_EXHAUSTED  There is no memory.
class Group {
 public:
  virtual ~Group() = default;

  virtual const std::string& name() const = 0;
  virtual int64_t generation() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // By rank: how this rank reaches it, "self", "shared memory", "tcp 10.0.0.4:4123" or, with TLS,
  // "tls 10.0.0.4:4123".
  virtual const std::vector<std::string>& paths() const = 0;
  // By rank: the machine that the rank runs on, as it reported when the group formed. Ranks of one
  // machine have the same text, whether or not they can share memory.
  virtual const std::vector<std::string>& hosts() const = 0;
  // Where the group's tensors are. Objects, barriers and sizes always go through the host.
  virtual Placement placement() const { return Placement::kHost; }
  // The GPU of this rank, or the host if the rank has no GPU.
  virtual Device device() const { return Device::Host(); }

  // By rank: the payload that this rank has exchanged with each other rank since its generation
  // began. Any thread may call it; it does not wait for calls. It counts the elements that a
  // collective by its definition moves from one rank to another, whatever path they take: one
  // message for each call and rank, also without elements.
  //
  //   AllReduce(Coalesced)   the whole input, to and from every other rank
  //   Reduce, Gather(V)      a rank's input, to the root
  //   Broadcast, Scatter     the tensor, or a rank's part, from the root
  //   AllGather(V)           a rank's input, to every other rank
  //   ReduceScatter(V)       another rank's part of the input, to that rank
  //   AllToAll(V)            another rank's part of the input, to that rank
  //   Exchange               each transfer
  //
  // It does not count headers, padding and detours of an algorithm, calls that failed, barriers,
  // ExchangeSizes, AwaitMessage and objects, and calls of a recorded sequence. A
  // call on a stream counts when it is enqueued.
  virtual std::vector<PeerStats> Stats() const = 0;

  // --- Memory.

  // Returns a contiguous tensor of undefined value, in memory that the other ranks of this host can
  // map: collectives need not copy it. The memory lives as long as the tensor or a copy of it, and
  // not longer than the group's process (or daemon). `device` is the host or device(). Errors:
  // RESOURCE_EXHAUSTED; INVALID_ARGUMENT (another device, or a negative extent).
  virtual absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape,
                                          Device device = {}) = 0;

  // Copies, on this rank alone, the elements of each `from` to its `to`. Both have one type and
  // shape, any layouts, and are on the host or on device(); they do not overlap. Errors:
  // INVALID_ARGUMENT; DEADLINE_EXCEEDED (the device is not done); errors of the device.
  virtual absl::Status CopyAll(absl::Span<const TensorCopy> copies,
                               const CallOptions& options = {}) = 0;
  absl::Status Copy(const Tensor& from, const Tensor& to, const CallOptions& options = {});

  // Runs one collective. The methods below are the ways to call it; a group implements this one.
  // Roots, dimensions, sizes and the reduction are in `call`. A rank that has no input or output
  // passes an empty tensor; a broadcast has its tensor as both. all_reduce_coalesced has its
  // tensors in `call`, and the first of them, if there is one, as `input` and `output`.
  virtual absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                           const CallOptions& options) = 0;

  // --- Every rank has a part of the same size.

  // output = the reduction of all inputs. In place: output is input. Source: MPI_Allreduce,
  // ncclAllReduce.
  absl::Status AllReduce(const Tensor& input, const Tensor& output, const Reduction& reduction,
                         const CallOptions& options = {});
  // AllReduce of several tensors with one call: outputs[i] = the reduction of all ranks' inputs[i].
  // All tensors have one type; outputs[i] has the shape of inputs[i], and shapes may differ between
  // indices. All ranks call it with the same shapes in the same order. In place: outputs[i] is
  // inputs[i], for all, some or no indices. A tensor does not overlap one of another index.
  //
  // The results have the bits of AllReduce on each tensor in turn. (On GPUs, NCCL may choose
  // another algorithm for the group of calls.) In host memory, small tensors that follow each other
  // share one exchange; larger ones have their own. On GPUs, all are one group of NCCL calls.
  //
  // Blocks like AllReduce; the timeout limits all tensors together. Errors: those of all
  // collectives, also if the list is empty or the lists differ in length. An error of an argument
  // names its index. Source: all_reduce_coalesced of torch.distributed, ncclGroupStart.
  absl::Status AllReduceCoalesced(absl::Span<const Tensor> inputs, absl::Span<const Tensor> outputs,
                                  const Reduction& reduction, const CallOptions& options = {});
  // Like AllReduce, at the root; other ranks' `output` is ignored.
  absl::Status Reduce(const Tensor& input, const Tensor& output, const Reduction& reduction,
                      int root, const CallOptions& options = {});
  // Every rank's `tensor` gets the elements of the root's `tensor`.
  absl::Status Broadcast(const Tensor& tensor, int root, const CallOptions& options = {});
  // output = all inputs concatenated along `dim`, by rank. output's extent along `dim` is size()
  // times input's.
  absl::Status AllGather(const Tensor& input, const Tensor& output, int dim,
                         const CallOptions& options = {});
  // output = this rank's part along `dim` of the reduction of all inputs. input's extent along
  // `dim` is size() times output's.
  absl::Status ReduceScatter(const Tensor& input, const Tensor& output, int dim,
                             const Reduction& reduction, const CallOptions& options = {});
  // Part r of output along the first dimension = part `rank` of rank r's input. Its extent is a
  // multiple of size(). Not in place.
  absl::Status AllToAll(const Tensor& input, const Tensor& output, const CallOptions& options = {});
  // Like AllGather, at the root; other ranks' `output` is ignored.
  absl::Status Gather(const Tensor& input, const Tensor& output, int dim, int root,
                      const CallOptions& options = {});
  // output = part `rank` along `dim` of the root's input; other ranks' `input` is ignored.
  absl::Status Scatter(const Tensor& input, const Tensor& output, int dim, int root,
                       const CallOptions& options = {});

  // --- Ragged: parts of different sizes along `dim`. All ranks pass the same `sizes`, one for each
  // rank; the sizes are compared like the rest of the call.

  // Input's extent along `dim` is sizes[rank()], output's is the sum.
  absl::Status AllGatherV(const Tensor& input, const Tensor& output, int dim, const Sizes& sizes,
                          const CallOptions& options = {});
  // Input's extent along `dim` is the sum, output's is sizes[rank()].
  absl::Status ReduceScatterV(const Tensor& input, const Tensor& output, int dim,
                              const Sizes& sizes, const Reduction& reduction,
                              const CallOptions& options = {});
  // Like AllGatherV, at the root.
  absl::Status GatherV(const Tensor& input, const Tensor& output, int dim, const Sizes& sizes,
                       int root, const CallOptions& options = {});
  // Sends, along the first dimension, input_sizes[r] elements to rank r and receives
  // output_sizes[r] from it. If rank r sends another number, all ranks get INVALID_ARGUMENT, which
  // names the two ranks. Not in place.
  absl::Status AllToAllV(const Tensor& input, const Sizes& input_sizes, const Tensor& output,
                         const Sizes& output_sizes, const CallOptions& options = {});
  // Returns every rank's `own`, by rank: the sizes for a ragged collective.
  absl::StatusOr<Sizes> ExchangeSizes(int64_t own, const CallOptions& options = {});

  // Blocks until all ranks have called it, at most for the timeout. All ranks call it, in order
  // with the other collectives: when it returns, every blocking call before it is done on every
  // rank. The barrier runs in the data plane, always through host memory; the coordinator takes no
  // part. Errors: those of all collectives. Source: MPI_Barrier, GroupCoordinator.barrier.
  //
  // It does not wait for streams; AwaitStreams does. On a stream it is INVALID_ARGUMENT: call an
  // AllReduce of one element there, which orders the streams of all ranks.
  //
  // Before ranks leave the group, use AllGatherObjects instead. A rank may return from a barrier
  // and leave while another rank still waits for a third one; the waiting rank then gets ABORTED.
  absl::Status Barrier(const CallOptions& options = {});

  // Fails the collective that the other ranks call, because this rank cannot take part in it. This
  // rank calls FailCollective instead of the collective. All ranks get INVALID_ARGUMENT with the
  // same text, which names this rank and `why`, and the group stays usable. If several ranks call
  // it, the text names two. Blocks as the collective would. Errors: those of all collectives.
  // On a stream it does not block and returns `why`: if other ranks make the call, the group ends
  // on all ranks with INVALID_ARGUMENT, which says the same; see NcclCommunicator::Refuse.
  virtual absl::Status FailCollective(const absl::Status& why, const CallOptions& options = {}) = 0;
  // FailCollective with the options of the collective. If `why` is no wrong argument, such as a
  // lack of memory, this rank gets the text that all ranks get with the code of `why`.
  absl::Status FailCollectiveAs(const absl::Status& why, const CallOptions& options);

  // --- Between two ranks.

  // Sends and receives; no transfer waits for another. Only the two ranks of each message call it.
  // Messages from one rank to another arrive in the order sent. Both ranks complete a message
  // before either calls a collective; a receive after one may be INVALID_ARGUMENT. A receive whose
  // tensor differs from the sent one in type or number of elements is INVALID_ARGUMENT, which names
  // both; the message is dropped.
  virtual absl::Status Exchange(absl::Span<const TensorTransfer> transfers,
                                const CallOptions& options = {}) = 0;
  absl::Status Send(const Tensor& tensor, int destination, const CallOptions& options = {});
  absl::Status Receive(const Tensor& tensor, int source, const CallOptions& options = {});
  // Waits until a message in host memory has arrived, or begun to, from one of `peers`, and returns
  // its rank, type and number of elements: the next receive from that rank gets it. Errors:
  // DEADLINE_EXCEEDED names the peers and leaves the group usable, so a timeout of zero polls.
  // INVALID_ARGUMENT: `peers` is empty, or has numbers that are no ranks or this rank, or the
  // placement is device. Source: MPI_Probe.
  virtual absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers,
                                                   const CallOptions& options = {}) = 0;

  // Waits until all work that was enqueued on streams is done. Errors: DEADLINE_EXCEEDED, which
  // leaves the group usable; the cause, if the group has ended.
  virtual absl::Status AwaitStreams(const CallOptions& /*options*/ = {}) {
    return absl::OkStatus();
  }

  // --- Many at once.

  // Captures, as a CUDA graph, the collectives and messages on GPU tensors that `body` calls on the
  // group it gets, instead of running them. All ranks call it and record the same collectives, at
  // least one; they are compared. Messages between them are recorded on their two ranks. Calls on
  // host memory, barriers, objects, sizes and allocations cannot be recorded: they return
  // FAILED_PRECONDITION, and so does Record, on the rank that tries; the other ranks get
  // INVALID_ARGUMENT. Errors: those of `body`; INVALID_ARGUMENT, on all ranks, names the first call
  // that differs, or the rank that could not capture its calls; FAILED_PRECONDITION (the placement
  // is the host); those of all collectives.
  virtual absl::StatusOr<std::unique_ptr<Sequence>> Record(
      absl::FunctionRef<absl::Status(Group&)> body, const CallOptions& options = {});

  // --- Objects, through the coordinator. They are not ordered with collectives and barriers.
  // Errors: see client::ProcessGroup.

  virtual absl::Status SendObject(absl::string_view object, int destination,
                                  const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<std::string> ReceiveObject(int source,
                                                    const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<std::string> BroadcastObject(absl::string_view object, int root,
                                                      const CallOptions& options = {}) = 0;
  virtual absl::StatusOr<std::vector<std::string>> AllGatherObjects(
      absl::string_view object, const CallOptions& options = {}) = 0;
  // AllGatherObjects of `members` alone: ranks of the group in ascending order, this one among
  // them. No other rank calls it. Returns the objects in the order of `members`. Calls of each set
  // of members are a sequence of their own. A member that comes when a call has timed out without
  // it takes part in the next one, in the same call, while its timeout lasts. Blocks until all
  // members have called. Errors: INVALID_ARGUMENT (not such ranks), DEADLINE_EXCEEDED (names the
  // members that are missing), and those of objects.
  virtual absl::StatusOr<std::vector<std::string>> AllGatherObjectsOf(
      absl::Span<const int> members, absl::string_view object, const CallOptions& options = {}) = 0;

  // --- The end, and the next beginning.

  // Joins the next generation after ABORTED or DEADLINE_EXCEEDED, and waits until the generation is
  // complete. Tensors stay valid. It ends calls in flight; no new call may begin beside it. After
  // an error it may be called again. Errors: those of forming the group.
  virtual absl::Status Rejoin(absl::Duration timeout = absl::Seconds(60)) = 0;
  // Ends calls in flight on all ranks, and all later calls of the generation, with ABORTED and
  // `cause`. Any thread may call it.
  virtual void Abort(const absl::Status& cause) = 0;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_GROUP_H_
