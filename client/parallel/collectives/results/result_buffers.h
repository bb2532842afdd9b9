// Memory for results, allocated in advance.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_RESULT_BUFFERS_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_RESULT_BUFFERS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/results/result_shapes.h"

namespace cohort::parallel {

// Tensors of a group's memory, which collectives use for their results: see the options in
// collectives.h. Source: prepare_communication_buffer_for_model.
//
// A tensor comes back to the buffers when its last copy is gone, and not before: no two results
// share memory. A caller that uses a tensor on a stream keeps it until the stream's work is done.
//
// Cheap to copy; copies are of the same buffers. Thread-safe. The group outlives its tensors.
class Buffers {
 public:
  // Allocates a tensor for each of `specs`, in memory that the other ranks can map, and touches
  // every page. It asks no other rank. Errors: those of Group::Allocate.
  static absl::StatusOr<Buffers> Prepare(client::Group& group, absl::Span<const TensorSpec> specs);

  // Returns the smallest free tensor that is large enough, on the same device. If there is no such
  // tensor, it returns new memory of the group, which does not come back to the buffers.
  // Contiguous, with undefined values. Errors: those of Group::Allocate.
  absl::StatusOr<Tensor> Take(const TensorSpec& spec) const;

  struct Counts {
    int64_t free = 0;
    int64_t in_use = 0;
    int64_t missed = 0;  // how often Take found no free tensor
  };
  Counts counts() const;

 private:
  struct State;
  explicit Buffers(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_RESULTS_RESULT_BUFFERS_H_
