// Reductions one element at a time, for types and operations without vector instructions.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_REDUCE_SCALAR_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_REDUCE_SCALAR_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"

namespace cohort::worker {

// kStreaming bypasses the caches, for results that would not stay there. Other ranks see them after
// the next release, as usual.
enum class Stores { kCached, kStreaming };

struct Operands {
  absl::Span<const void* const> inputs;
  absl::Span<void* const> outputs;
  int64_t count = 0;
  Stores stores = Stores::kCached;
};

// Like Reduce, for bool, the 8-bit floating types, and products and averages of integers; also for
// f16 and f64 where the machine has no vectors of them.
void ReduceScalars(DataType type, const Reduction& reduction, const Operands& operands);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_REDUCE_SCALAR_H_
