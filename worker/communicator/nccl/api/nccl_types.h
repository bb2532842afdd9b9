// NCCL's types and reductions for ours, and the types and reductions that NCCL lacks.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_TYPES_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_TYPES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "base/collective/reduction.h"
#include "base/tensor/data_type.h"
#include "nccl.h"

namespace cohort::worker {

// The type in which elements travel when no rank computes with them.
struct NcclElements {
  ncclDataType_t type = ncclUint8;
  // The number of elements of `type` in one of ours: types that NCCL lacks travel as bytes.
  int64_t factor = 1;
};
NcclElements ElementsToMove(DataType type);

struct NcclReduction {
  ncclDataType_t type = ncclUint8;
  // ncclNumOps stands for the sum of scaled elements: that is made for each communicator, type and
  // scale, by RedOpCreatePreMulSum.
  ncclRedOp_t op = ncclSum;
};

// `compute_capability` is the device's: 90 is 9.0.
//
// Where NCCL computes otherwise than the rest of Cohort:
//
// - f16, bf16 and the 8-bit types are rounded at every step, in an order that NCCL chooses by size
//   and topology. All ranks have the same bits, but not those of host memory.
// - kAvg of floating types multiplies each element by 1/N, rounded to the type, before it adds;
//   kPreMulSum by the scale, rounded likewise.
// - kMin and kMax of floating types are C's fmin and fmax, of any order: a NaN gives way to every
//   number, and only where all ranks have one the result is NaN. In host memory it is NaN where any
//   rank has one. Which NaN it is, and which of two zeros, is left open in both.
// - A bool that is true is some byte that is not 0.
//
// Errors: INVALID_ARGUMENT (CheckReducible), UNIMPLEMENTED (NCCL, or the device, cannot).
absl::StatusOr<NcclReduction> ReductionFor(DataType type, ReduceOp op, int compute_capability,
                                           int ranks);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_API_NCCL_TYPES_H_
