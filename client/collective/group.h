// A group of ranks, as each of them sees it: who it is, tensors to and from the others, barriers,
// objects. Whether the rank is this process (worker::LocalGroup) or a daemon's (RemoteGroup) makes
// no difference to who uses it.
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
#include "base/collective_call.h"
#include "base/reduction.h"
#include "base/tensor.h"
#include "client/collective/peer_stats.h"
#include "client/collective/sequence.h"

namespace cohort::client {

// By rank: how many elements of the dimension in question each has.
using Sizes = std::vector<int64_t>;

struct CallOptions {
  // Of this call; absent: the group's.
  std::optional<absl::Duration> timeout;
  // Of tensors on this rank's GPU: a cudaStream_t of this process, null the default one. The call
  // returns once its work is enqueued there; what is enqueued on the stream behind it finds the
  // result. Of several streams, the group's work is done in the order of its calls. The timeout is
  // then what the work may take on the device, once it is its turn. What goes wrong there is said
  // by the next call, and by AwaitStreams. Absent: the call blocks.
  std::optional<void*> stream;
};

// One tensor to a rank, or one from it.
struct TensorTransfer {
  bool sends = false;
  int peer = 0;
  Tensor tensor;
};

// Elements to copy on one rank.
struct TensorCopy {
  Tensor from;
  Tensor to;
};

// Counts what a collective has moved.
void CountCollective(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                     PeerCounters& peers);
// Counts what an Exchange has moved.
void CountTransfers(absl::Span<const TensorTransfer> transfers, PeerCounters& peers);

// Rules of all tensor verbs
//
// - All ranks of the group call the same verbs in the same order, with the same type, shape (but
//   for what is said to be ragged), root and reduction. A call blocks until its tensors may be used
//   again, at most for its timeout.
// - `dim` is -n..n-1, counted from the end if negative. Roots and peers are ranks in the group.
// - Inputs and outputs have any strides. Fast are contiguous ones from Allocate, of all ranks.
// - The tensors of a call are all in memory of the host, or all on this rank's device(), on all
//   ranks alike.
// - Outputs are written by the call and by nobody else. They do not overlap inputs, unless they are
//   the very same elements where "in place" allows it.
// - Tensors of no elements, and groups of one rank, are fine everywhere.
// - Floating types of 8 and 16 bits are added up in f32 in the order of ranks and rounded once: all
//   ranks have the same bits.
//
// Errors of all
//
//   INVALID_ARGUMENT    ranks called different things: all of them get this, naming two that
//                       differ, and the group works on. Or a rank's own tensors, root or dimension
//                       do not fit the verb: all hear that, too, and which rank's, where the call
//                       blocks; on streams, and of messages, that rank alone. On a host, the root
//                       of a broadcast of few KiB waits for nobody, and others only for the root.
//                       Who called something else hears so at once; those who went on hear it from
//                       a later call, which says that it was done itself.
//   DEADLINE_EXCEEDED   some ranks did not come in time; names them. The group is broken.
//   ABORTED             a rank is lost, gave up or aborted, or the generation ended: names it and
//                       the cause. Rejoin.
//   RESOURCE_EXHAUSTED  no memory.
class Group {
 public:
  virtual ~Group() = default;

  virtual const std::string& name() const = 0;
  virtual int64_t generation() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // By rank: how this rank reaches it, "self", "shared memory" or "tcp 10.0.0.4:4123".
  virtual const std::vector<std::string>& paths() const = 0;
  // By rank: the machine that it runs on, as it said when the group formed; the same text for ranks
  // of one machine, whether or not they can share memory.
  virtual const std::vector<std::string>& hosts() const = 0;
  // Objects, barriers and sizes go by way of the host, whatever it is.
  virtual Placement placement() const { return Placement::kHost; }
  // The GPU of this rank; the host, where it has none.
  virtual Device device() const { return Device::Host(); }

  // By rank: the payload that this rank has exchanged with each other one since its generation
  // began. From any thread; blocks for no call. Counted are the elements that a verb by its
  // definition takes from one rank to another, whatever way they take: one message for each call
  // and rank, also of no elements.
  //
  //   AllReduce              the whole input, to and from every other rank
  //   Reduce, Gather(V)      a rank's input, to the root
  //   Broadcast, Scatter     the tensor, or a rank's part, from the root
  //   AllGather(V)           a rank's input, to every other rank
  //   ReduceScatter(V)       another rank's part of the input, to that rank
  //   AllToAll(V)            another rank's part of the input, to that rank
  //   Exchange               each transfer
  //
  // Not counted: headers, padding and detours of an algorithm; calls that failed;
  // barriers, ExchangeSizes, AwaitMessage and objects; the calls of a recorded sequence that a GPU
  // replays. A call on a stream counts when it is enqueued.
  virtual std::vector<PeerStats> Stats() const = 0;

  // --- Memory.

  // Contiguous, of no defined value, where the other ranks of this host can reach it: what is in it
  // need not be copied to be shared. Lives as long as the tensor or a copy, and not longer than
  // the group's process (or daemon). On the host, or on device(). Errors: RESOURCE_EXHAUSTED;
  // INVALID_ARGUMENT (another device, or a negative extent).
  virtual absl::StatusOr<Tensor> Allocate(DataType type, const Shape& shape,
                                          Device device = {}) = 0;

  // On this rank alone: the elements of each `from` to its `to`, of one type and shape, whatever
  // their layouts, on the host or on device(). They do not overlap. Errors: INVALID_ARGUMENT;
  // DEADLINE_EXCEEDED (the device is not done); those of the device.
  virtual absl::Status CopyAll(absl::Span<const TensorCopy> copies,
                               const CallOptions& options = {}) = 0;
  absl::Status Copy(const Tensor& from, const Tensor& to, const CallOptions& options = {});

  // Runs one collective. The methods below are the ways to call it; a group implements this one.
  // Roots, dimensions, sizes and the reduction are in `call`. A rank that has no input or output
  // passes an empty tensor; a broadcast has its tensor as both.
  virtual absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                           const CallOptions& options) = 0;

  // --- Every rank has the same part.

  // output = the reduction of all inputs. In place: output is input.
  absl::Status AllReduce(const Tensor& input, const Tensor& output, const Reduction& reduction,
                         const CallOptions& options = {});
  // As AllReduce, at the root; `output` of others is not looked at.
  absl::Status Reduce(const Tensor& input, const Tensor& output, const Reduction& reduction,
                      int root, const CallOptions& options = {});
  // All have what the root's `tensor` has.
  absl::Status Broadcast(const Tensor& tensor, int root, const CallOptions& options = {});
  // output = all inputs one behind the other along `dim`, by rank. output's extent there is size()
  // times input's.
  absl::Status AllGather(const Tensor& input, const Tensor& output, int dim,
                         const CallOptions& options = {});
  // output = this rank's part along `dim` of the reduction of all inputs. input's extent there is
  // size() times output's.
  absl::Status ReduceScatter(const Tensor& input, const Tensor& output, int dim,
                             const Reduction& reduction, const CallOptions& options = {});
  // Part r of output along the first dimension = part `rank` of rank r's input. Its extent is a
  // multiple of size(). Not in place.
  absl::Status AllToAll(const Tensor& input, const Tensor& output, const CallOptions& options = {});
  // As AllGather, at the root; `output` of others is not looked at.
  absl::Status Gather(const Tensor& input, const Tensor& output, int dim, int root,
                      const CallOptions& options = {});
  // output = part `rank` along `dim` of the root's input; `input` of others is not looked at.
  absl::Status Scatter(const Tensor& input, const Tensor& output, int dim, int root,
                       const CallOptions& options = {});

  // --- Ragged: parts of different sizes along `dim`. All ranks give the same `sizes`, one for each
  // rank, which is checked as everything else is.

  // Input's extent along `dim` is sizes[rank()], output's is the sum.
  absl::Status AllGatherV(const Tensor& input, const Tensor& output, int dim, const Sizes& sizes,
                          const CallOptions& options = {});
  // Input's extent along `dim` is the sum, output's is sizes[rank()].
  absl::Status ReduceScatterV(const Tensor& input, const Tensor& output, int dim,
                              const Sizes& sizes, const Reduction& reduction,
                              const CallOptions& options = {});
  // As AllGatherV, at the root.
  absl::Status GatherV(const Tensor& input, const Tensor& output, int dim, const Sizes& sizes,
                       int root, const CallOptions& options = {});
  // Along the first dimension: input_sizes[r] go to rank r, output_sizes[r] come from it, where
  // they are what it sends: other numbers are INVALID_ARGUMENT on all ranks, naming the two. Not in
  // place.
  absl::Status AllToAllV(const Tensor& input, const Sizes& input_sizes, const Tensor& output,
                         const Sizes& output_sizes, const CallOptions& options = {});
  // Every rank's `own`, by rank: for ragged verbs whose sizes nobody knows yet.
  absl::StatusOr<Sizes> ExchangeSizes(int64_t own, const CallOptions& options = {});

  // Blocks until all ranks have called it, at most for the timeout. All ranks call it, in order
  // with the other verbs: when it returns, every blocking call before it is done on every rank.
  // Ranks meet in the data plane, always through host memory; the coordinator takes no part.
  // Errors: those of all verbs. Source: MPI_Barrier, GroupCoordinator.barrier.
  //
  // It does not wait for streams; AwaitStreams does. On a stream it is INVALID_ARGUMENT: call an
  // AllReduce of one element there, which orders the streams of all ranks.
  //
  // Before ranks leave the group, use AllGatherObjects instead. A rank may return from a barrier
  // and leave while another rank still waits for a third one; the waiting rank then gets ABORTED.
  absl::Status Barrier(const CallOptions& options = {});

  // In place of the verb of all ranks that the others call: this rank cannot take part in it, for a
  // reason that the verb would not see. All ranks get INVALID_ARGUMENT with the same text, which
  // names this rank and `why`, and the group works on; of several that refuse, two are named.
  // Blocks as the verb would. Errors: that; those of verbs.
  virtual absl::Status Refuse(const absl::Status& why, const CallOptions& options = {}) = 0;

  // --- Between two ranks.

  // Sends and receives, none of which waits for another. The two ranks of each alone call it; what
  // one sends another arrives in the order sent, and is received before either calls a verb of all
  // ranks: behind one it may be INVALID_ARGUMENT. A receive's tensor has the sent one's type and as
  // many elements: else it is INVALID_ARGUMENT, naming both, and that message is gone.
  virtual absl::Status Exchange(absl::Span<const TensorTransfer> transfers,
                                const CallOptions& options = {}) = 0;
  absl::Status Send(const Tensor& tensor, int destination, const CallOptions& options = {});
  absl::Status Receive(const Tensor& tensor, int source, const CallOptions& options = {});
  // The first of `peers` from which a message in memory of the host has come, or begun to, that was
  // not received: who awaits several ranks learns whom to receive from. Errors: DEADLINE_EXCEEDED
  // names them and, unlike that of other verbs, ends nothing: a timeout of zero is a look.
  // INVALID_ARGUMENT: `peers` are none, not ranks, or this rank; or the placement is device.
  virtual absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers,
                                           const CallOptions& options = {}) = 0;

  // Until all that was enqueued on streams is done. OK where there is none. Errors:
  // DEADLINE_EXCEEDED, which ends nothing; why the group has ended.
  virtual absl::Status AwaitStreams(const CallOptions& /*options*/ = {}) {
    return absl::OkStatus();
  }

  // --- Many at once.

  // Keeps what `body` calls of the tensor verbs of the group that it is given, in place of doing
  // it, and barriers. All ranks record the same, which is compared. Nothing else can be recorded:
  // objects, sizes and allocations are FAILED_PRECONDITION, and so is Record, on the rank that
  // tries; the others hear INVALID_ARGUMENT. What is wrong with a call's tensors may be said by the
  // first replay. Errors: body's; INVALID_ARGUMENT, on all ranks alike, names the first call that
  // differs; those of verbs.
  virtual absl::StatusOr<std::unique_ptr<Sequence>> Record(
      absl::FunctionRef<absl::Status(Group&)> body, const CallOptions& options = {});

  // --- Objects, through the coordinator: see client::ProcessGroup, whose errors these are. In no
  // order with tensors and barriers.

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

  // After ABORTED or DEADLINE_EXCEEDED: takes the seat in the next generation, and waits until it
  // is complete. Tensors stay valid. Not beside other calls, but it ends those in flight. When it
  // fails, it may be called again. Errors: those of forming the group.
  virtual absl::Status Rejoin(absl::Duration timeout = absl::Seconds(60)) = 0;
  // Ends what is in flight on all ranks, and everything later, with ABORTED and `cause`. From any
  // thread.
  virtual void Abort(const absl::Status& cause) = 0;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_GROUP_H_
