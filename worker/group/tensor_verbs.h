// The tensor verbs of client::Group, on a communicator: dimensions, strides and ragged sizes on top
// of flat memory.
#ifndef COHORT_WORKER_GROUP_TENSOR_VERBS_H_
#define COHORT_WORKER_GROUP_TENSOR_VERBS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/reduction.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "worker/communicator/communicator.h"
#include "worker/group/scratch.h"
#include "worker/group/tensor_call.h"
#include "worker/group/tensor_place.h"

namespace cohort::worker {

// A shape by another, which outlives it.
struct Like {
  Like(const Shape& shape) : shape(shape) {}  // NOLINT: a shape is like itself
  Like(const Shape& shape, int dim, int64_t extent) : shape(shape), dim(dim), extent(extent) {}

  const Shape& shape;
  int dim = -1;  // which has another extent; -1: none
  int64_t extent = 0;
};

// What each verb does, and its errors: see client::Group. A tensor whose memory is what the
// communicator needs goes to it as it is; others go through scratch, with a copy in or out. What
// cannot be seen in flat memory, such as shapes, is compared by digest in the communicator's own
// meeting, and costs no other.
//
// A rank's own mistake is found before anything is called: see worker/communicator/refusal.h. One
// thread at a time.
class TensorVerbs {
 public:
  // All outlive it. `communicator` moves what lies in `place`, on `device`; `host` moves sizes and
  // texts, by memory of the process: the same one where that is the place.
  TensorVerbs(Communicator* communicator, TensorPlace* place)
      : TensorVerbs(communicator, place, Device::Host(), communicator) {}
  TensorVerbs(Communicator* communicator, TensorPlace* place, Device device, Communicator* host);

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }

  // See client::Group::Run.
  absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                   Instant deadline);

  absl::Status Exchange(absl::Span<const client::TensorTransfer> transfers, Instant deadline);
  absl::StatusOr<int> AwaitMessage(absl::Span<const int> peers, Instant deadline);
  // In place of a verb: `why`, which this rank has not met the others for, is what all hear.
  absl::Status TellRefusal(absl::string_view why, Instant deadline);

 private:
  // --- The collectives. `asked` is the call as its caller gave it.

  absl::Status AllReduce(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status Reduce(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                      Instant deadline);
  absl::Status Broadcast(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status AllGather(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status ReduceScatter(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                             Instant deadline);
  absl::Status AllToAll(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                        Instant deadline);
  absl::Status Gather(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                      Instant deadline);
  absl::Status Scatter(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                       Instant deadline);
  absl::Status AllGatherV(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                          Instant deadline);
  absl::Status ReduceScatterV(const CollectiveCall& asked, const Tensor& input,
                              const Tensor& output, Instant deadline);
  absl::Status GatherV(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                       Instant deadline);
  absl::Status AllToAllV(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status ExchangeSizes(const CollectiveCall& asked, const Tensor& input, const Tensor& output,
                             Instant deadline);
  absl::Status Barrier(Instant deadline);

  // --- Local checks. Errors: INVALID_ARGUMENT, naming the call and what it should be.

  absl::Status CheckDevice(const CollectiveCall& call, absl::string_view which,
                           const Tensor& tensor) const;
  absl::Status SetRoot(CollectiveCall& call, int root) const;
  absl::Status CheckInput(const CollectiveCall& call, const Tensor& input) const;
  // Of the call's type and so many elements by dimension.
  absl::Status CheckInput(const CollectiveCall& call, const Tensor& input, const Like& like) const;
  absl::Status CheckOutput(const CollectiveCall& call, const Tensor& output,
                           const Like& like) const;
  // Puts them into the call. One size for each rank, and the sum.
  absl::StatusOr<int64_t> SetSizes(CollectiveCall& call, absl::Span<const int64_t> sizes) const;

  // --- Flat memory.

  // What the view's elements are in flat memory: its own, or a copy in scratch.
  absl::StatusOr<const void*> Load(const Tensor& view);
  // Where the view's elements shall come to be: its own memory, or scratch, which Store copies to
  // the view.
  absl::StatusOr<void*> Place(const Tensor& view);
  absl::Status Store(const void* flat, const Tensor& view);
  // A flat tensor of the place.
  Tensor Flat(const void* data, DataType type, const Shape& shape) const {
    return Tensor(const_cast<void*>(data), type, shape, nullptr, device_);
  }
  auto Copier() {
    return [this](const Tensor& from, const Tensor& to) { return place_.Copy(from, to); };
  }

  // Runs `collective`, which moves the elements of `call`.
  absl::Status RunFlat(const CollectiveCall& call, Collective collective, const void* input,
                       void* output, int64_t count, Instant deadline);
  // The result of the call, with an error that people can read.
  absl::Status Finish(const CollectiveCall& call, absl::Status status, Instant deadline);
  // And when what was copied after it is there.
  absl::Status FinishCopied(const CollectiveCall& call, absl::Status status, Instant deadline);
  // And with its result at `flat` in the view, unless it is null.
  absl::Status Finish(const CollectiveCall& call, absl::Status status, const void* flat,
                      const Tensor& view, Instant deadline);

  // --- Of checked calls.

  absl::Status EqualAllGather(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                              Instant deadline);
  absl::Status EqualReduceScatter(const CollectiveCall& call, const Tensor& input,
                                  const Tensor& output, Instant deadline);
  absl::Status EqualGather(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                           Instant deadline);
  absl::Status EqualAllToAll(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                             Instant deadline);

  // Each part padded to the size of the largest.
  absl::Status PaddedAllGather(const CollectiveCall& call, const Tensor& input,
                               const Tensor& output, Instant deadline);
  absl::Status PaddedReduceScatter(const CollectiveCall& call, const Tensor& input,
                                   const Tensor& output, Instant deadline);
  absl::Status PaddedGather(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                            Instant deadline);
  // Each part by a verb of its own.
  absl::Status BroadcastParts(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                              Instant deadline);
  absl::Status ReduceParts(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                           Instant deadline);
  absl::Status SendParts(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status ExchangeParts(const CollectiveCall& call, const Tensor& input,
                             absl::Span<const int64_t> input_sizes, const Tensor& output,
                             absl::Span<const int64_t> output_sizes, Instant deadline);
  // That each rank gets as much as the other sends.
  absl::Status CheckCounterparts(const CollectiveCall& call) const;

  Communicator& communicator_;
  Communicator& host_;
  TensorPlace& place_;
  const Device device_;
  Scratch scratch_;
  std::vector<int64_t> all_sizes_;  // of an all_to_all_v: by rank, those of its input and output
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TENSOR_VERBS_H_
