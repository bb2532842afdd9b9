// The rows of all ranks, of several tensors at once.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROWS_GATHER_ROWS_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROWS_GATHER_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/tensor/tensor.h"
#include "client/collective/call_deadline.h"
#include "client/collective/group.h"
#include "client/parallel/moe/routing/moe_agreement.h"

namespace cohort::parallel {

// Host tensors whose gathered rows have up to so many bytes travel together: copying them costs
// less than another exchange of the ranks.
inline constexpr int64_t kPackedBytes = int64_t{64} << 10;

// Gathers each tensor, which has sizes[rank()] rows here, by rank. `sizes` has one number for each
// rank. Unless `agreed`, ranks compare their meanings before anything moves. Tensors that travel
// together share memory, in cache lines of their own. Errors: those of Group, which all ranks get.
absl::StatusOr<std::vector<Tensor>> GatherRows(client::Group& group,
                                               absl::Span<const Tensor* const> tensors,
                                               const client::Sizes& sizes, const Meaning& meaning,
                                               bool agreed, const client::CallDeadline& deadline);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROWS_GATHER_ROWS_H_
