// Reductions one element at a time: of what vector units have no instruction for.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_SCALAR_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_SCALAR_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/data_type.h"
#include "base/reduction.h"

namespace cohort::worker {

// kStreaming goes past the caches: for results that would not stay there anyhow. They are seen by
// others behind the next release, as usual.
enum class Stores { kCached, kStreaming };

struct Operands {
  absl::Span<const void* const> inputs;
  absl::Span<void* const> outputs;
  int64_t count = 0;
  Stores stores = Stores::kCached;
};

// As Reduce. Bool, the 8-bit floating types, and products and averages of integers; f16 and f64
// where the machine's vectors have none.
void ReduceScalars(DataType type, const Reduction& reduction, const Operands& operands);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_SCALAR_H_
