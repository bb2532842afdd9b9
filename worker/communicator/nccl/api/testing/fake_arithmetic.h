// Reductions as NCCL computes them, on host memory.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_ARITHMETIC_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_ARITHMETIC_H_

#include <array>
#include <cstddef>
#include <vector>

#include "nccl.h"

namespace cohort::worker {

// The size of one element; 0 if `type` is not a type.
size_t NcclBytes(ncclDataType_t type);

// One element of any type.
using FakeScalar = std::array<char, 8>;

// From the first of `inputs` to the last, rounded to `type` after every step; `output` may be one
// of them. ncclAvg of floating types scales by 1/N before it adds, of integers divides behind. A
// NaN is passed over by the least and the largest. `scalars`, one for each input, are of
// ncclNumOps, which stands for PreMulSum.
void ReduceAsNccl(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& inputs,
                  const std::vector<FakeScalar>& scalars, void* output, size_t count);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_TESTING_FAKE_ARITHMETIC_H_
