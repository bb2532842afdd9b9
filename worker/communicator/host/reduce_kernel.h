// The arithmetic of reductions on host memory.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_KERNEL_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_KERNEL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/data_type.h"
#include "base/reduction.h"
#include "worker/communicator/host/reduce_scalar.h"

namespace cohort::worker {

// Element by element, from the first of `inputs` to the last, and the result to each of `outputs`.
// All hold `count` elements of `type`, which CheckReducible allows; none needs to be aligned. An
// output may be an input; otherwise they do not overlap. kAvg divides by the number of inputs.
//
// f16, bf16 and the 8-bit types are added up in f32 and rounded once at the end, so the result
// depends neither on who computes it nor on where a tensor is cut; nor on the machine's vectors: a
// product is rounded before it is added.
void Reduce(DataType type, const Reduction& reduction, absl::Span<const void* const> inputs,
            absl::Span<void* const> outputs, int64_t count, Stores stores = Stores::kCached);

// `bytes` of them to each of `outputs`, which may be where they are already; read once. Not memcpy:
// from 2 KiB on that is one instruction, which on some processors (AMD's) takes ten times as long
// where another has the destination in its cache.
void Copy(const void* input, absl::Span<void* const> outputs, int64_t bytes,
          Stores stores = Stores::kCached);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_KERNEL_H_
