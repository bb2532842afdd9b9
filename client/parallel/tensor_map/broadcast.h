// Broadcasts a tensor map from one rank to all.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_BROADCAST_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_BROADCAST_H_

#include "absl/status/statusor.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/parallel/messages/pending_call.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

struct BroadcastMapOptions {
  int root = 0;  // rank in the group
  // The timeout limits the whole call. A stream is for the tensors on GPUs: they are enqueued
  // there, while the call blocks for the rest of the map.
  client::CallOptions call;
};

// All ranks get the root's map: the same keys in the same order, with nested maps, the same values,
// and tensors of the same types, shapes and elements. All ranks of the group call it; it blocks.
// `map` is the root's; it is ignored on other ranks and may be null there.
//
// Tensors of the map have any type, layout and number of dimensions, and may be empty. The others
// get the tensors of the root's GPU on their own GPUs, and the rest on the host. In a group whose
// placement is device, the host's part goes through the coordinator.
//
// - On the root the result is `map` itself with the same tensors; nothing is copied. The same holds
//   in a group of one.
// - On the others tensors are new and contiguous. Large tensors are from Group::Allocate, one by
//   one. Small tensors of one map, up to 16 KiB on the host and 64 KiB on GPUs, share one piece of
//   memory, which lives as long as one of them.
//
// Large tensors are broadcast directly between their places. The small ones and the rest of the map
// go together in one broadcast, and the small ones on GPUs in one more.
//
// Errors, the same on all ranks; the group stays usable:
//   INVALID_ARGUMENT    Ranks gave different roots, or a root that is not a rank. The root gave no
//                       map, or one that cannot be sent: nested too deeply, a tensor without
//                       memory, or on a GPU that is not the group's; names the root and the path to
//                       the tensor. A rank had no memory for the map; names it.
//   RESOURCE_EXHAUSTED  The root's map exceeds the limits of entries.h.
// And those of Group.
//
// Source: GroupCoordinator.broadcast_tensor_dict.
absl::StatusOr<TensorMap> BroadcastTensorMap(client::Group& group, const TensorMap* map,
                                             const BroadcastMapOptions& options = {});

// The same without blocking, after the calls that were started before on `calls` of the group.
// `map` is ignored on all ranks but the root.
Pending<TensorMap> StartBroadcastTensorMap(client::AsyncCalls& calls, TensorMap map,
                                           const BroadcastMapOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_BROADCAST_H_
