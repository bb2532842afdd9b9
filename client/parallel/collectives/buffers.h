// Memory for results, allocated ahead.
#ifndef COHORT_CLIENT_PARALLEL_COLLECTIVES_BUFFERS_H_
#define COHORT_CLIENT_PARALLEL_COLLECTIVES_BUFFERS_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/results.h"

namespace cohort::parallel {

// Tensors of a group's memory, which verbs take for their results: see the options in
// collectives.h. Seed: prepare_communication_buffer_for_model.
//
// A tensor comes back to the buffers when the last copy of it is gone, and not before: no result is
// ever another's memory. So who uses it on a stream keeps it until the work there is done.
//
// Cheap to copy; copies are of the same buffers. Thread-safe. The group outlives its tensors.
class Buffers {
 public:
  // A new tensor for each of `specs`, in memory that the other ranks reach, with every page there.
  // No other rank is asked. Errors: those of Group::Allocate.
  static absl::StatusOr<Buffers> Prepare(client::Group& group, absl::Span<const TensorSpec> specs);

  // The smallest free one that is large enough, on the same device; where there is none, new memory
  // of the group, which will not come back. Contiguous, of no defined value. Errors: those of
  // Group::Allocate.
  absl::StatusOr<Tensor> Take(const TensorSpec& spec) const;

  struct Counts {
    int64_t free = 0;
    int64_t in_use = 0;
    int64_t missed = 0;  // how often Take found none
  };
  Counts counts() const;

 private:
  struct State;
  explicit Buffers(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_COLLECTIVES_BUFFERS_H_
