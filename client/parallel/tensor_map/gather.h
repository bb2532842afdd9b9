// Large tensors that all ranks of a group have alike, sent once to another group: each rank sends
// its part, and those who receive gather.
//
// Two groups of as many ranks, such as the tensor groups of two pipeline stages: rank r of the one
// sends to rank r of the other. Of n bytes between the groups, n go instead of n for each rank.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_GATHER_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_GATHER_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "client/collective/group.h"
#include "client/parallel/tensor_map/entries.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// Who sends decides, and says so ahead of each map; who receives follows, or refuses it. Nothing is
// sent in parts unless it is asked for: what is not the same on all ranks of the group would be
// mixed up, and nobody would see it.
struct MapGatherOptions {
  // This rank's: of the sender, the group whose ranks have the same tensors; of the receiver, the
  // group that gathers, of as many ranks. It outlives the call. Null: all tensors go whole.
  client::Group* group = nullptr;
  // Of the sender. Tensors whose elements divide by the group's size, and which it moves, go in
  // parts, the others whole.
  bool all = false;
  // Of the sender. By the way to a tensor, before `all`: true, it goes in parts, or the map is
  // refused; false, it goes whole. Of no other tensors.
  std::vector<std::pair<Path, bool>> overrides;
  // Of the sender, the same on all ranks of its group, which all send at the same time: checks that
  // they have the same elements. Reads all of them: not for every day.
  bool check = false;
};

// Into how many parts a tensor goes. Errors: INVALID_ARGUMENT (an override cannot be followed:
// names the way and why).
absl::StatusOr<int> PartsFor(const MapGatherOptions& options, WayTo way, const Tensor& tensor);
// An override that is true says something of a tensor that is there. Errors: INVALID_ARGUMENT.
absl::Status CheckOverrides(const MapGatherOptions& options, const TensorMap& map);

// This rank's part, of flat elements; a view, where it can be.
absl::StatusOr<Tensor> PartOf(client::Group& group, const Tensor& tensor, int parts, int part,
                              const client::CallOptions& options);

// Whether all ranks of the group have the same elements in the tensors that go in parts. All of
// them call it. Errors: INVALID_ARGUMENT, on all (names two ranks and the tensor, by its number
// among those that go in parts).
absl::Status CheckAlike(client::Group& group, const std::vector<Tensor>& tensors,
                        const client::CallOptions& options);

// All ranks of the gathering group say whether they have received what is to be gathered; each
// calls it once for a map, whatever came. Errors: own's; INVALID_ARGUMENT (another rank has
// received nothing, or something else: names it).
absl::Status AllHaveParts(client::Group& group, const absl::Status& own,
                          absl::Span<const TensorEntry> entries,
                          const client::CallOptions& options);

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_GATHER_H_
