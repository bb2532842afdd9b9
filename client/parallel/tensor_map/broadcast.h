// A tensor map from one rank to all.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_BROADCAST_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_BROADCAST_H_

#include "absl/status/statusor.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/parallel/messages/pending.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

struct BroadcastMapOptions {
  int root = 0;  // rank in the group
  // The timeout is of all of the call. A stream is for the tensors on GPUs: they are enqueued
  // there, while the call blocks for the rest of the map.
  client::CallOptions call;
};

// All ranks get the root's map: the same keys in the same order, nested maps kept, the same values,
// and tensors of the same types, shapes and elements. All ranks of the group call it; blocks.
// `map` is the root's; that of others is not looked at and may be null.
//
// Tensors of the map have any type, layout and number of dimensions, and may be empty. What the
// root has on its GPU the others get on theirs, the rest on the host. In a group whose placement is
// device the host's part goes through the coordinator.
//
// - On the root the result is `map` itself, whose tensors are the very same elements; nothing is
//   copied. So it is in a group of one.
// - On the others tensors are new and contiguous. Large ones are from Group::Allocate, each by
//   itself. Small ones of one map, up to 16 KiB on the host and 64 KiB on GPUs, lie in one piece of
//   memory, which lives as long as one of them.
//
// Large tensors are broadcast from where they lie to where they are to be; small ones and the rest
// of the map go in one broadcast together, those on GPUs in one more.
//
// Errors, on all ranks the same, and the group works on:
//   INVALID_ARGUMENT    ranks gave different roots, or one that is none; the root gave no map, or
//                       one that cannot go: nested too deeply, a tensor without memory, or on
//                       a GPU that is not the group's; names the root and the way to it. A rank
//                       had no memory for what came; names it.
//   RESOURCE_EXHAUSTED  the root's map has more than what travels (entries.h).
// And those of Group.
//
// Seed: GroupCoordinator.broadcast_tensor_dict.
absl::StatusOr<TensorMap> BroadcastTensorMap(client::Group& group, const TensorMap* map,
                                             const BroadcastMapOptions& options = {});

// The same while the caller does something else, behind what was started before on `calls`, which
// are of the group. Of others than the root no map is looked at.
Pending<TensorMap> StartBroadcastTensorMap(client::AsyncCalls& calls, TensorMap map,
                                           const BroadcastMapOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_BROADCAST_H_
