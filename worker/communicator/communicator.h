// Collectives on flat, contiguous memory: what a backend does, and nothing more. Dimensions, ragged
// sizes, strides and tensor maps live above it.
#ifndef COHORT_WORKER_COMMUNICATOR_COMMUNICATOR_H_
#define COHORT_WORKER_COMMUNICATOR_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/data_type.h"
#include "base/reduction.h"

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
  void* data = nullptr;  // of a send: read only
  int64_t count = 0;
  DataType type = DataType::kU8;
};

// A note has no more.
inline constexpr int64_t kNoteBytes = 24;

// All ranks call the same verbs in the same order, with the same type, count, root and reduction;
// `count` is in elements and may be 0. A call blocks until its memory may be used again, at the
// latest until `deadline` (steady time). Inputs are read and outputs written in no order; they do
// not overlap, unless a verb says what "in place" means for it. After an error, outputs are
// undefined. One thread at a time.
//
// Errors of every verb:
//
// - INVALID_ARGUMENT: this rank's arguments make no sense (the others wait for it in vain). Or the
//   ranks called different things: all of them get this, naming two that differ, with the mark of
//   mismatch.h, and the communicator works on.
// - DEADLINE_EXCEEDED: some ranks did not come; names them. It works no more: the others get
//   ABORTED.
// - ABORTED: a rank is gone or gave up, or Abort was called; names the rank and the cause.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // What else the ranks must agree on in the verbs to come: a digest of it, which is compared as
  // the count is, and costs nothing; of messages, between their two ranks. What lies above this,
  // such as shapes, is checked so. 0 until it is set.
  void set_tag(uint32_t tag) { tag_ = tag; }

  // output[i] = the reduction of all ranks' input[i], on every rank with the same bits. In place:
  // output == input.
  virtual absl::Status AllReduce(const void* input, void* output, int64_t count, DataType type,
                                 const Reduction& reduction, Instant deadline) = 0;
  // As AllReduce, to `root` alone; `output` of others is not looked at.
  virtual absl::Status Reduce(const void* input, void* output, int64_t count, DataType type,
                              const Reduction& reduction, int root, Instant deadline) = 0;
  // output = input of `root`; `input` of others is not looked at. In place: output == input.
  virtual absl::Status Broadcast(const void* input, void* output, int64_t count, DataType type,
                                 int root, Instant deadline) = 0;
  // As Broadcast, but a rank may return before the others have come: the root of few bytes waits
  // for nobody, others wait for the root. Whoever called something else is told at once, by an
  // error without a mark; ranks that have gone on hear of it by TakeOverdue.
  virtual absl::Status BroadcastAhead(const void* input, void* output, int64_t count, DataType type,
                                      int root, Instant deadline) {
    return Broadcast(input, output, count, type, root, deadline);
  }
  // Once: INVALID_ARGUMENT, how a BroadcastAhead of before differed from what another rank called.
  // To be asked behind every call that has succeeded.
  virtual absl::Status TakeOverdue() { return absl::OkStatus(); }

  // output[r * count ...] = input of rank r. In place: input == output + rank * count.
  virtual absl::Status AllGather(const void* input, void* output, int64_t count, DataType type,
                                 Instant deadline) = 0;
  // output[i] = the reduction of all ranks' input[rank * count + i]. In place: output == input +
  // rank * count.
  virtual absl::Status ReduceScatter(const void* input, void* output, int64_t count, DataType type,
                                     const Reduction& reduction, Instant deadline) = 0;
  // output[r * count ...] = rank r's input[rank * count ...]. Not in place.
  virtual absl::Status AllToAll(const void* input, void* output, int64_t count, DataType type,
                                Instant deadline) = 0;
  // As AllGather, to `root` alone; `output` of others is not looked at.
  virtual absl::Status Gather(const void* input, void* output, int64_t count, DataType type,
                              int root, Instant deadline) = 0;
  // output = root's input[rank * count ...]; `input` of others is not looked at. In place at the
  // root: output == input + rank * count.
  virtual absl::Status Scatter(const void* input, void* output, int64_t count, DataType type,
                               int root, Instant deadline) = 0;
  // Sends and receives, none of which waits for another: they may be given in any order. Called by
  // the two ranks of each message alone. What one rank sends another arrives in the order sent: a
  // send is taken by the first receive from its rank that has none yet. Empty messages travel too.
  //
  // A receive of another type, count or tag than what was sent is INVALID_ARGUMENT, naming both,
  // and the message is gone; the others of the list are done all the same. The sender is told too,
  // unless the message was so small that it did not wait. To and from itself: INVALID_ARGUMENT.
  virtual absl::Status Exchange(absl::Span<const Transfer> transfers, Instant deadline) = 0;
  // Whether a message of `peer` that nobody has received has come, or begun to. Does not wait.
  // Errors: ABORTED, as soon as this rank knows of it, by whatever it could have heard from `peer`.
  virtual absl::StatusOr<bool> HasMessage(int peer) = 0;
  // The first of `peers`, which are other ranks, that HasMessage is true of; waits for one. Errors:
  // DEADLINE_EXCEEDED, which ends nothing; ABORTED.
  virtual absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline) = 0;
  // --- Notes: small messages apart from all others, neither of which is ever received as one of
  // the other kind, whatever the order of the calls. For what is built on a communicator, to agree
  // on messages of its own.

  // As Exchange, of kNoteBytes at most each; a send waits for its receive only where several are on
  // the way already.
  virtual absl::Status ExchangeNotes(absl::Span<const Transfer> notes, Instant deadline) = 0;
  // As HasMessage, of notes.
  virtual absl::StatusOr<bool> HasNote(int peer) = 0;

  // Returns when all ranks have come.
  virtual absl::Status Barrier(Instant deadline) = 0;

  // Before this rank leaves for good: returns when the others have come for what it gave them and
  // did not wait for, or never will, and at `deadline`.
  virtual void Settle(Instant deadline) { static_cast<void>(deadline); }

  // Ends what is in flight, on all ranks, and everything later, with ABORTED and `cause`, which
  // says who is to blame, such as "rank 3 is gone". From any thread; the first cause stays.
  virtual void Abort(absl::string_view cause) = 0;

 protected:
  uint32_t tag() const { return tag_; }

 private:
  uint32_t tag_ = 0;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_COMMUNICATOR_H_
