// Tensors of a map, allocated and checked for a group.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_GROUP_TENSORS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_GROUP_TENSORS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/tensor_map/entries/entries.h"

namespace cohort::parallel {

// Whether the group's collectives move memory of this kind.
bool Moves(const client::Group& group, bool on_gpu);

// Checks that a tensor can be sent. Host memory always can: if the group does not move it, it
// travels as objects. Errors: INVALID_ARGUMENT (names the path to the tensor): it is on another GPU
// than the group's, or the group has no GPU.
absl::Status CheckMoves(const client::Group& group, WayTo way, const Tensor& tensor);

// Allocates a received tensor, on the host or on this rank's own GPU. An empty tensor has no
// memory. Errors: INVALID_ARGUMENT (this rank has no GPU), those of Allocate.
absl::StatusOr<Tensor> AllocateFor(client::Group& group, const TensorEntry& entry);
// Allocates all tensors of a map; the small ones share one piece of memory for each place.
absl::StatusOr<std::vector<Tensor>> AllocateAll(client::Group& group,
                                                const std::vector<TensorEntry>& entries);
// Allocates host memory for small tensors: where others can map it, if it is large enough to gain
// from that.
absl::StatusOr<Tensor> AllocateSmall(client::Group& group, int64_t bytes);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_GROUP_TENSORS_H_
