// Sends large tensors that all ranks of a group have alike to another group once: each rank sends
// its part, and the receivers gather the parts.
//
// Both groups have the same number of ranks, such as the tensor groups of two pipeline stages: rank
// r of one sends to rank r of the other. Of n bytes, n travel between the groups, not n for each
// rank.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_GATHER_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_GATHER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/collective/group.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// The sender decides and announces it before each map. The receiver follows, or refuses the map. A
// tensor is sent in parts only on request. If ranks of the group have different elements, the
// receivers mix them up without an error.
struct MapGatherOptions {
  // This rank's group. On the sender: the ranks that have the same tensors. On the receiver: the
  // ranks that gather, as many as the sender's. It outlives the call. Null: all tensors travel
  // whole.
  client::Group* group = nullptr;
  // On the sender. If true, tensors that the group can move and whose elements divide by its size
  // travel in parts, the others whole.
  bool all = false;
  // On the sender. Takes precedence over `all`, by the path to a tensor. True: it travels in parts,
  // or the map is refused. False: it travels whole. Other tensors follow `all`.
  std::vector<std::pair<Path, bool>> overrides;
  // On the sender, the same on all ranks of its group, which all send at the same time: checks that
  // they have the same elements. It reads all elements, so it is for debugging.
  bool check = false;
};

// The number of parts in which a tensor travels. Errors: INVALID_ARGUMENT (an override cannot be
// followed: names the path and why).
absl::StatusOr<int> PartsFor(const MapGatherOptions& options, WayTo way, const Tensor& tensor);
// Checks that each override that is true names a tensor of the map. Errors: INVALID_ARGUMENT.
absl::Status CheckOverrides(const MapGatherOptions& options, const TensorMap& map);

// Checks that all ranks of the group have the same elements in the tensors that travel in parts.
// All of them call it. Errors: INVALID_ARGUMENT, on all ranks (names two ranks and the tensor, by
// its number among those that travel in parts).
absl::Status CheckAlike(client::Group& group, const std::vector<Tensor>& tensors,
                        const client::CallOptions& options);

// All ranks of the gathering group call it once for each map, whether they received it or not, and
// exchange that. Errors: `own`; INVALID_ARGUMENT (another rank received nothing, or another map:
// names it).
absl::Status AllHaveParts(client::Group& group, const absl::Status& own,
                          absl::Span<const TensorEntry> entries,
                          const client::CallOptions& options);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_GATHER_H_
