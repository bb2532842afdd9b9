// Tensors of a map, as a group can move them.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_GROUP_TENSORS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_GROUP_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/tensor_map/entries.h"

namespace cohort::parallel {

// Whether the group's verbs move memory of this kind.
bool Moves(const client::Group& group, bool on_gpu);

// Memory of the host can always go: where the group moves none, by way of objects. Errors:
// INVALID_ARGUMENT (names the way to the tensor): it lies on another GPU than the group's, or the
// group has none.
absl::Status CheckMoves(const client::Group& group, WayTo way, const Tensor& tensor);

// For what comes, on the host or on this rank's own GPU; of no elements without memory. Errors:
// INVALID_ARGUMENT (this rank has no GPU), those of Allocate.
absl::StatusOr<Tensor> AllocateFor(client::Group& group, const TensorEntry& entry);
// For all of a map; the small ones in one piece of memory for each place.
absl::StatusOr<std::vector<Tensor>> AllocateAll(client::Group& group,
                                                const std::vector<TensorEntry>& entries);
// For small things of the host: where others can reach them, if there are so many that it helps.
absl::StatusOr<Tensor> AllocateSmall(client::Group& group, int64_t bytes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_GROUP_TENSORS_H_
