// A tensor map from one rank to another.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_SEND_RECEIVE_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_SEND_RECEIVE_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/messages/pending_call.h"
#include "client/parallel/tensor_map/gather.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// A channel of Messages; the same on both sides. Maps of one channel arrive in the order sent.
inline constexpr int kTensorMapChannel = 0x4D6170;

struct SendMapOptions {
  std::optional<int> to;  // rank in the group; absent: the next, behind the last the first
  int channel = kTensorMapChannel;
  MapGatherOptions gather;
  client::CallOptions call;
};

struct ReceiveMapOptions {
  std::optional<int> from;  // rank in the group; absent: the one before, before the first the last
  int channel = kTensorMapChannel;
  MapGatherOptions gather;
  client::CallOptions call;
};

// Sends a map to one rank, which calls ReceiveTensorMap; no other rank takes part. The map is one
// message: its entries with the small tensors, and the large tensors directly between their places.
// If the map is small and whole, the call returns once the message is on its way; otherwise when
// the receiver has it. The map's tensors have any type and layout, and may be empty. The caller
// does not write to them until the call returns.
//
// If a map cannot be sent, both ranks get an error, and the next map can be sent:
//   INVALID_ARGUMENT     Nested too deeply; a tensor without memory, or on a GPU that is not the
//                        group's; an override of `gather` that cannot be followed; names the path
//                        to it. The receiver does not gather, or in another number of parts.
//   RESOURCE_EXHAUSTED   Above the limits of entries.h.
//   FAILED_PRECONDITION  A group of one rank has no other rank to send to.
// And those of Messages. If they name the peer's rank as wrong, the other rank gets no error.
//
// Source: GroupCoordinator.send_tensor_dict (isend_tensor_dict: StartSendTensorMap).
absl::Status SendTensorMap(Messages& messages, const TensorMap& map,
                           const SendMapOptions& options = {});

// Returns the next map of one rank: the same keys in the same order, with nested maps, the same
// values, and tensors of the same types, shapes and elements. The tensors are new and contiguous,
// and none overlaps another. Large ones are from Group::Allocate, one by one. Small ones of one
// place share one piece of memory, which lives as long as one of them. Tensors that the sender has
// on its GPU are on this rank's GPU.
//
// With a group to gather in, all its ranks call it, each for a map of its own sender. If one of
// them gets an error, all of them get one.
//
// Errors: as of SendTensorMap, where the sender's errors name the sender. INVALID_ARGUMENT: the
// message is not a map; or the map is sent in parts, and this rank does not gather, or in a group
// of another size. Then the map is dropped, and the next one can be received.
//
// Source: GroupCoordinator.recv_tensor_dict (irecv_tensor_dict: StartReceiveTensorMap).
absl::StatusOr<TensorMap> ReceiveTensorMap(Messages& messages,
                                           const ReceiveMapOptions& options = {});

// The same without blocking, after the calls that were started before on `calls` of
// messages.group(). Everything, gathering included, is done when the pending call is over.
// `messages` and the group to gather in outlive the call, and are not used in other ways until
// then. The map and the options are copied.
client::PendingCall StartSendTensorMap(client::AsyncCalls& calls, Messages& messages, TensorMap map,
                                       SendMapOptions options = {});
Pending<TensorMap> StartReceiveTensorMap(client::AsyncCalls& calls, Messages& messages,
                                         ReceiveMapOptions options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_SEND_RECEIVE_H_
