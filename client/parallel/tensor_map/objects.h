// Typed values between ranks: objects whose bytes nobody evaluates.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_OBJECTS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_OBJECTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "client/parallel/tensor_map/broadcast.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// All ranks get the root's values; how many there are only the root knows before. Values of any
// kind, tensors too, under the rules and with the errors of BroadcastTensorMap. All ranks call it;
// blocks. `list` is the root's; that of others is not looked at and may be null.
//
// Seed: GroupCoordinator.broadcast_object_list.
absl::StatusOr<List> BroadcastObjectList(client::Group& group, const List* list,
                                         const BroadcastMapOptions& options = {});
// The same of one value. Seed: GroupCoordinator.broadcast_object.
absl::StatusOr<Value> BroadcastObject(client::Group& group, const Value* value,
                                      const BroadcastMapOptions& options = {});

// A value of any kind, tensors too, to one other rank, through the coordinator, which keeps it:
// does not wait for the receiver, who calls ReceiveObject below. In the order sent, among all
// objects between the two ranks. Tensors arrive as those of a map that is broadcast: on the
// receiver's GPU where they lay on the sender's, else on the host; new and contiguous. Their
// elements go by way of the host and the coordinator: for large ones, SendTensorMap is the fast
// way. Errors:
//   INVALID_ARGUMENT    `to` is no other rank of the group: nobody hears of it. The value is nested
//                       too deeply, or has a tensor on a GPU that is not the group's: the receiver
//                       hears that in its place.
//   RESOURCE_EXHAUSTED  more than what travels (entries.h; tensors and the rest together at most
//                       kMaxEntryBytes); the receiver hears it.
// And those of Group::SendObject. Seed: GroupCoordinator.send_object.
absl::Status SendObject(client::Group& group, const Value& value, int to,
                        const client::CallOptions& options = {});
// Blocks until it is there. Errors: INVALID_ARGUMENT (`from` is no other rank of the group; what
// came is no value, such as what Group::SendObject sent); the sender's, if it had none that could
// be sent; those of Allocate and of Group::ReceiveObject. Seed: GroupCoordinator.recv_object.
absl::StatusOr<Value> ReceiveObject(client::Group& group, int from,
                                    const client::CallOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_OBJECTS_H_
