// The collectives of client::Group on tensors, on top of a communicator of flat memory: dimensions,
// strides and ragged sizes.
#ifndef COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_COLLECTIVES_H_
#define COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_COLLECTIVES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/collective/reduction.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "worker/communicator/communicator.h"
#include "worker/group/collectives/contiguous_scratch.h"
#include "worker/group/collectives/mismatch_text.h"
#include "worker/group/collectives/tensor_call.h"
#include "worker/group/collectives/tensor_location.h"

namespace cohort::worker {

// A shape, given by another shape that outlives it.
struct Like {
  Like(const Shape& shape) : shape(shape) {}  // NOLINT: a shape is like itself
  Like(const Shape& shape, int dim, int64_t extent) : shape(shape), dim(dim), extent(extent) {}

  const Shape& shape;
  int dim = -1;  // the dimension that has `extent`; -1: none
  int64_t extent = 0;
};

// For the collectives and their errors see client::Group. A tensor whose memory has the layout that
// the communicator needs goes to it as it is. Others go through scratch, with a copy in or out.
// Properties that flat memory does not show, such as shapes, are compared by digest. The digest
// travels with the communicator's own barrier, and costs no other.
//
// A mistake in this rank's arguments is found before the rank waits for the others: see
// worker/communicator/argument_error.h. One thread at a time.
class TensorCollectives {
 public:
  // All outlive it. `communicator` moves memory of `location`, on `device`. `host` moves sizes and
  // texts in host memory; it is `communicator` if the location is in host memory.
  TensorCollectives(Communicator* communicator, TensorLocation* location)
      : TensorCollectives(communicator, location, Device::Host(), communicator) {}
  TensorCollectives(Communicator* communicator, TensorLocation* location, Device device,
                    Communicator* host);

  int rank() const { return communicator_.rank(); }
  int size() const { return communicator_.size(); }

  // See client::Group::Run.
  absl::Status Run(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                   Instant deadline);

  absl::Status Exchange(absl::Span<const client::TensorTransfer> transfers, Instant deadline);
  absl::StatusOr<MessageInfo> AwaitMessage(absl::Span<const int> peers, Instant deadline);
  // Replaces a collective that this rank failed before it arrived at the barrier: all ranks
  // get the error `why`.
  absl::Status FailOnAllRanks(absl::string_view why, Instant deadline);

 private:
  absl::Status WrongRoot(const CollectiveCall& call) const;
  absl::Status RunWithResolvedDim(const CollectiveCall& call, const Tensor& input,
                                  const Tensor& output, Instant deadline);

  // --- The collectives. Run has checked root and dimension; the dimension is 0..n-1.

  absl::Status AllReduce(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status Reduce(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                      Instant deadline);
  absl::Status Broadcast(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status AllGather(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status ReduceScatter(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                             Instant deadline);
  absl::Status AllToAll(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                        Instant deadline);
  absl::Status Gather(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                      Instant deadline);
  absl::Status Scatter(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                       Instant deadline);
  absl::Status AllGatherV(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                          Instant deadline);
  absl::Status ReduceScatterV(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                              Instant deadline);
  absl::Status GatherV(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                       Instant deadline);
  absl::Status AllToAllV(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status ExchangeSizes(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                             Instant deadline);
  absl::Status Barrier(Instant deadline);

  // --- Local checks. Errors: INVALID_ARGUMENT, naming the call and the expected argument.

  absl::Status CheckDevice(const CollectiveCall& call, absl::string_view which,
                           const Tensor& tensor) const;
  absl::Status CheckInput(const CollectiveCall& call, const Tensor& input) const;
  // Checks for the call's type and the shape of `like`.
  absl::Status CheckInput(const CollectiveCall& call, const Tensor& input, const Like& like) const;
  absl::Status CheckOutput(const CollectiveCall& call, const Tensor& output,
                           const Like& like) const;
  // Checks the call's sizes, one for each rank. Returns their sum.
  absl::StatusOr<int64_t> CheckSizes(const CollectiveCall& call) const;

  // --- Flat memory.

  // Returns the view's elements in flat memory: the view's own, or a copy in scratch.
  absl::StatusOr<const void*> Load(const Tensor& view);
  // Returns flat memory for the view's elements: the view's own, or scratch, from which Store
  // copies to the view.
  absl::StatusOr<void*> FlatMemory(const Tensor& view);
  absl::Status Store(const void* flat, const Tensor& view);
  // Returns a flat tensor in the location's memory.
  Tensor Flat(const void* data, DataType type, const Shape& shape) const {
    return Tensor(const_cast<void*>(data), type, shape, nullptr, device_);
  }
  auto Copier() {
    return [this](const Tensor& from, const Tensor& to) { return location_.Copy(from, to); };
  }

  // Runs `collective` on `count` elements, with the other arguments of `call`.
  absl::Status RunFlat(const CollectiveCall& call, Collective collective, const void* input,
                       void* output, int64_t count, Instant deadline);
  // Returns the error of a call of which `own` is the text; after a mismatch, one that all ranks get
  // and that shows two calls. `form`, `mixed`: see ExplainMismatch.
  absl::Status Explain(const std::string& own, absl::Status status, Instant deadline,
                       CallForm form = CallForm::kOther, bool* mixed = nullptr);
  // Returns the result of the call; after a mismatch, an error that shows both calls.
  absl::Status Finish(const CollectiveCall& call, absl::Status status, Instant deadline);
  // The same, after it has waited for copies.
  absl::Status FinishCopied(const CollectiveCall& call, absl::Status status, Instant deadline);
  // The same, after it has copied the result from `flat` to the view; null: no copy.
  absl::Status Finish(const CollectiveCall& call, absl::Status status, const void* flat,
                      const Tensor& view, Instant deadline);

  // --- Calls whose arguments were checked.

  absl::Status EqualAllGather(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                              Instant deadline);
  absl::Status EqualReduceScatter(const CollectiveCall& call, const Tensor& input,
                                  const Tensor& output, Instant deadline);
  absl::Status EqualGather(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                           Instant deadline);
  // `mixed`: see ExplainMismatch; null: not asked.
  absl::Status EqualAllToAll(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                             Instant deadline, bool* mixed);

  // Pads each part to the size of the largest.
  absl::Status PaddedAllGather(const CollectiveCall& call, const Tensor& input,
                               const Tensor& output, Instant deadline);
  absl::Status PaddedReduceScatter(const CollectiveCall& call, const Tensor& input,
                                   const Tensor& output, Instant deadline);
  absl::Status PaddedGather(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                            Instant deadline);
  // Runs one collective or message for each part.
  absl::Status BroadcastParts(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                              Instant deadline);
  absl::Status ReduceParts(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                           Instant deadline);
  absl::Status SendParts(const CollectiveCall& call, const Tensor& input, const Tensor& output,
                         Instant deadline);
  absl::Status ExchangeParts(const CollectiveCall& call, const Tensor& input,
                             absl::Span<const int64_t> input_sizes, const Tensor& output,
                             absl::Span<const int64_t> output_sizes, Instant deadline);
  // Checks that each rank expects as much as the other sends.
  absl::Status CheckCounterparts(const CollectiveCall& call) const;

  Communicator& communicator_;
  Communicator& host_;
  TensorLocation& location_;
  const Device device_;
  ContiguousScratch scratch_;
  // The text of this rank's call that failed with FirstMismatchError, until EarlierMismatchError
  // tells all ranks. Empty: no such call.
  std::string failed_call_;
  std::vector<int64_t> all_sizes_;  // of an all_to_all_v: by rank, its input's and its output's
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_COLLECTIVES_TENSOR_COLLECTIVES_H_
