// Collectives on flat, contiguous memory. Dimensions, strides, ragged sizes and tensor maps are in
// the layer above, worker/group.
#ifndef COHORT_WORKER_COMMUNICATOR_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/collective/collective.h"
#include "base/collective/message_info.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"

namespace cohort::worker {

// One message to a rank, or one from it.
struct Transfer {
  static Transfer Send(int peer, const void* data, int64_t count, DataType type) {
    return {true, peer, const_cast<void*>(data), count, type};
  }
  static Transfer Receive(int peer, void* data, int64_t count, DataType type) {
    return {false, peer, data, count, type};
  }

  bool sends = false;
  int peer = 0;
  void* data = nullptr;  // read only if the transfer sends
  int64_t count = 0;
  DataType type = DataType::kU8;
  uint32_t tag = 0;  // the two ranks compare it like the count
};

// A message on one channel is never received on another, and never waits for one there.
enum class MessageChannel : uint8_t {
  kData,
  // Messages of at most kControlBytes, on which backends agree about other messages. A send waits
  // for its receive only if several messages are on the way already.
  kControl,
};
inline constexpr int64_t kControlBytes = 24;

// One rank of a group of ranks. A backend implements it.
//
//   FlatCall call;
//   call.collective = Collective::kAllReduce;
//   call.type = DataType::kF32;
//   call.count = 1024;
//   absl::Status status = communicator.Run(call, input, output, deadline);
//
// Calls come from one thread at a time; Abort comes from any thread.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Runs one collective. All ranks run equal calls in the same order. Blocks until `input` and
  // `output` may be used again, at the latest until `deadline` (steady time). `count` is the
  // number of elements of one rank's part and may be 0. Inputs and outputs do not overlap, except
  // where "in place" allows it. After an error, outputs are undefined.
  //
  //   collective      input          output         output holds
  //   kAllReduce      count          count          the sum of all inputs, the same bits everywhere
  //   kReduce         count          count at root  the sum of all inputs
  //   kBroadcast      count at root  count          the root's input
  //   kAllGather      count          size * count   all inputs, by rank
  //   kReduceScatter  size * count   count          part `rank` of the sum of all inputs
  //   kAllToAll       size * count   size * count   as part r: part `rank` of rank r's input
  //   kGather         count          size * count   all inputs, by rank; at the root alone
  //   kScatter        size * count   count          part `rank` of the root's input
  //   kBarrier        none           none           nothing; all ranks have called it
  //
  // In place: kAllReduce, kReduce and kBroadcast take output == input; kAllGather and kGather take
  // input == output + rank * count; kReduceScatter and kScatter take output == input + rank *
  // count.
  //
  // "Sum" stands for call.reduction. "At root" means that other ranks' memory is not read or
  // written; it may be null.
  //
  // An eager broadcast may return before the other ranks have called it: the root of few bytes
  // waits for no other rank, and other ranks wait only for the root. A rank that called a different
  // collective then gets an error without the mark of mismatch.h, and all ranks get
  // EarlierMismatchError from one later call, which no rank runs: the next one that waits for all
  // ranks, or else an eager broadcast a fixed number of calls later.
  //
  // Errors:
  //
  // - INVALID_ARGUMENT: this rank's arguments are wrong (the other ranks wait until their
  //   deadline). Or the ranks called different collectives: all ranks get this error, which names
  //   two ranks that differ and has the mark of mismatch.h; the communicator stays usable.
  // - DEADLINE_EXCEEDED: some ranks did not call; the error names them. The communicator is broken:
  //   the other ranks get ABORTED.
  // - ABORTED: a rank is lost, left or gave up, or Abort was called; names the rank and the cause.
  virtual absl::Status Run(const FlatCall& call, const void* input, void* output,
                           Instant deadline) = 0;

  // Sends and receives; no transfer waits for another, so they may be given in any order. Only the
  // two ranks of each message call it. Messages from one rank to another arrive in the order sent;
  // the first receive takes the first message. Empty messages travel too. Blocks as Run.
  //
  // A receive whose type, count or `tag` differs from the sent message is INVALID_ARGUMENT and
  // names both; the message is dropped, and the other transfers complete. The sender gets the same
  // error, unless the message was so small that the sender did not wait. Transfers to the own rank
  // are INVALID_ARGUMENT. Other errors as Run.
  virtual absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                                MessageChannel channel = MessageChannel::kData) = 0;
  // Waits until a message from one of `peers`, which are other ranks, has arrived or begun to, and
  // says what the next receive from that rank gets. With a deadline of InfinitePast it does not
  // block. Errors: DEADLINE_EXCEEDED (the communicator stays usable); ABORTED, as soon as this rank
  // knows that the group or one of `peers` is lost, or that one of them left. A caller that can do
  // without a rank that left calls it for the others.
  virtual absl::StatusOr<MessageInfo> AwaitMessage(
      absl::Span<const int> peers, Instant deadline,
      MessageChannel channel = MessageChannel::kData) = 0;

  // Called before this rank leaves. Waits until the other ranks have taken the data that this rank
  // sent without waiting, until they cannot take it any more, or until `deadline`.
  virtual void Drain(Instant deadline) = 0;

  // Ends calls in flight on all ranks, and all later calls, with ABORTED and `cause`. `cause` names
  // the culprit, such as "rank 3 is gone". The first cause stays.
  virtual void Abort(absl::string_view cause) = 0;

  // `rank` has left the group in order, and sends nothing any more; `cause` says so, such as "rank 3
  // left the group". Collectives, and messages to or from it, then end with ABORTED and `cause`;
  // messages that it has sent still arrive, and so do those between other ranks. Any thread may call
  // it. A backend whose ranks cannot do without one ends all calls.
  virtual void NoteLeft(int /*rank*/, absl::string_view cause) { Abort(cause); }

  // Whether AwaitMessage would find a message from `peer` now.
  absl::StatusOr<bool> HasMessage(int peer, MessageChannel channel = MessageChannel::kData) {
    const absl::Status status =
        AwaitMessage(absl::MakeConstSpan(&peer, 1), absl::InfinitePast(), channel).status();
    if (!status.ok() && !absl::IsDeadlineExceeded(status)) return status;
    return status.ok();
  }

  // --- Typed forms of Run, for callers without a FlatCall.

  absl::Status AllReduce(const void* input, void* output, int64_t count, DataType type,
                         const Reduction& reduction, Instant deadline) {
    return Run(Typed(Collective::kAllReduce, count, type, 0, reduction), input, output, deadline);
  }
  absl::Status Reduce(const void* input, void* output, int64_t count, DataType type,
                      const Reduction& reduction, int root, Instant deadline) {
    return Run(Typed(Collective::kReduce, count, type, root, reduction), input, output, deadline);
  }
  absl::Status Broadcast(const void* input, void* output, int64_t count, DataType type, int root,
                         Instant deadline) {
    return Run(Typed(Collective::kBroadcast, count, type, root), input, output, deadline);
  }
  absl::Status EagerBroadcast(const void* input, void* output, int64_t count, DataType type,
                              int root, Instant deadline) {
    FlatCall call = Typed(Collective::kBroadcast, count, type, root);
    call.eager = true;
    return Run(call, input, output, deadline);
  }
  absl::Status AllGather(const void* input, void* output, int64_t count, DataType type,
                         Instant deadline) {
    return Run(Typed(Collective::kAllGather, count, type), input, output, deadline);
  }
  absl::Status ReduceScatter(const void* input, void* output, int64_t count, DataType type,
                             const Reduction& reduction, Instant deadline) {
    return Run(Typed(Collective::kReduceScatter, count, type, 0, reduction), input, output,
               deadline);
  }
  absl::Status AllToAll(const void* input, void* output, int64_t count, DataType type,
                        Instant deadline) {
    return Run(Typed(Collective::kAllToAll, count, type), input, output, deadline);
  }
  absl::Status Gather(const void* input, void* output, int64_t count, DataType type, int root,
                      Instant deadline) {
    return Run(Typed(Collective::kGather, count, type, root), input, output, deadline);
  }
  absl::Status Scatter(const void* input, void* output, int64_t count, DataType type, int root,
                       Instant deadline) {
    return Run(Typed(Collective::kScatter, count, type, root), input, output, deadline);
  }
  absl::Status Barrier(Instant deadline) { return Run(FlatCall(), nullptr, nullptr, deadline); }

 private:
  static FlatCall Typed(Collective collective, int64_t count, DataType type, int root = 0,
                        const Reduction& reduction = {}) {
    FlatCall call;
    call.collective = collective;
    call.type = type;
    call.root = root;
    call.count = count;
    call.reduction = reduction;
    return call;
  }
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_COMMUNICATOR_H_
