// A tensor map from one rank to another.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_SEND_RECEIVE_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_SEND_RECEIVE_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/async_calls.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/messages/pending.h"
#include "client/parallel/tensor_map/gather.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// Of Messages; the same on both sides. Maps of one channel arrive in the order sent.
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

// To one rank, which calls ReceiveTensorMap; no other rank is asked. Goes as one message: its
// entries, the small tensors with them, the large ones from where they lie to where they are to be.
// Returns once it is on its way, if it is small and whole; else when the receiver has it. The map's
// tensors have any type and layout, and may be empty; until it returns they are not written to.
//
// A map that cannot go is an error of both ranks, and the next one goes:
//   INVALID_ARGUMENT     nested too deeply; a tensor without memory, or on a GPU that is not the
//                        group's; an override of `gather` that cannot be followed; names the way to
//                        it. The receiver does not gather, or in another number of parts.
//   RESOURCE_EXHAUSTED   more than what travels (entries.h).
//   FAILED_PRECONDITION  a group of one rank has no other to send to.
// And those of Messages, which also say what is wrong with the peer: then the other rank hears
// nothing.
//
// Seed: GroupCoordinator.send_tensor_dict (isend_tensor_dict: StartSendTensorMap).
absl::Status SendTensorMap(Messages& messages, const TensorMap& map,
                           const SendMapOptions& options = {});

// The next map of one rank: the same keys in the same order, nested maps kept, the same values, and
// tensors of the same types, shapes and elements. They are new and contiguous, and none overlaps
// another: large ones each by itself from Group::Allocate, small ones of one place in one piece of
// memory, which lives as long as one of them. Those that the sender has on its GPU are on this
// rank's own.
//
// With a group to gather in, all its ranks call it, each for a map of its own sender, and an error
// of one of them is an error of all.
//
// Errors: as of SendTensorMap, those of the sender saying whose they are; and INVALID_ARGUMENT:
// what came is no map; it goes in parts, and this rank does not gather, or in a group of another
// size. Then the map is gone, and the next one can be received.
//
// Seed: GroupCoordinator.recv_tensor_dict (irecv_tensor_dict: StartReceiveTensorMap).
absl::StatusOr<TensorMap> ReceiveTensorMap(Messages& messages,
                                           const ReceiveMapOptions& options = {});

// The same while the caller does something else: behind what was started before on `calls`, which
// are of messages.group(). All that is to be done with what came, gathering too, is done when the
// pending one is over. `messages` and the group to gather in outlive it, and are not used by other
// ways until then; map and options are copied.
client::PendingCall StartSendTensorMap(client::AsyncCalls& calls, Messages& messages, TensorMap map,
                                       SendMapOptions options = {});
Pending<TensorMap> StartReceiveTensorMap(client::AsyncCalls& calls, Messages& messages,
                                         ReceiveMapOptions options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_SEND_RECEIVE_H_
