// The arithmetic of reductions on host memory.
#ifndef COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_REDUCE_KERNEL_H_
#define COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_REDUCE_KERNEL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"
#include "worker/communicator/host/reduce/reduce_scalar.h"

namespace cohort::worker {

// Reduces `inputs` element by element, from the first to the last, and writes the result to each of
// `outputs`. All hold `count` elements of `type`, which CheckReducible allows; they need not be
// aligned. An output may be an input; otherwise they do not overlap. kAvg divides by the number of
// inputs.
//
// f16, bf16 and the 8-bit floating types accumulate in f32 and are rounded once at the end. The
// result does not depend on the rank that computes it, on where a tensor is cut, or on the
// machine's vectors: a product is rounded before it is added.
void Reduce(DataType type, const Reduction& reduction, absl::Span<const void* const> inputs,
            absl::Span<void* const> outputs, int64_t count, Stores stores = Stores::kCached);

// Copies `bytes` to each of `outputs`; an output may be the input. Beyond 256 bytes it reads the
// input once and does not use memcpy. From 2 KiB on, memcpy is one instruction. On some processors
// (AMD's) that takes ten times as long if another processor's cache has the destination.
void Copy(const void* input, absl::Span<void* const> outputs, int64_t bytes,
          Stores stores = Stores::kCached);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_HOST_REDUCE_REDUCE_KERNEL_H_
