// Typed values between ranks: objects that the receiver parses and never executes.
#ifndef COHORT_CLIENT_PARALLEL_TENSOR_MAP_OBJECTS_H_
#define COHORT_CLIENT_PARALLEL_TENSOR_MAP_OBJECTS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "client/parallel/tensor_map/broadcast.h"
#include "client/parallel/tensor_map/tensor_map.h"

namespace cohort::parallel {

// All ranks get the root's values; only the root knows their number before. Values have any kind,
// tensors included, under the rules and with the errors of BroadcastTensorMap. All ranks call it;
// it blocks. `list` is the root's; it is ignored on other ranks and may be null there.
//
// Source: GroupCoordinator.broadcast_object_list.
absl::StatusOr<List> BroadcastObjectList(client::Group& group, const List* list,
                                         const BroadcastMapOptions& options = {});
// The same for one value. Source: GroupCoordinator.broadcast_object.
absl::StatusOr<Value> BroadcastObject(client::Group& group, const Value* value,
                                      const BroadcastMapOptions& options = {});

// Sends a value of any kind, tensors included, to one other rank. The coordinator keeps it, so the
// call does not wait for the receiver, which calls ReceiveObject below. Objects between two ranks
// arrive in the order sent. Tensors arrive like those of a broadcast map: on the receiver's GPU if
// they were on the sender's, else on the host; new and contiguous. Their elements travel through
// the host and the coordinator: SendTensorMap is the fast way for large tensors. Errors:
//   INVALID_ARGUMENT    `to` is not another rank of the group: that rank gets no error. The value
//                       is nested too deeply, or has a tensor on a GPU that is not the group's: the
//                       receiver gets the error instead of the value.
//   RESOURCE_EXHAUSTED  Above the limits of entries.h; tensors and the rest together have at most
//                       kMaxEntryBytes. The receiver gets the error, too.
// And those of Group::SendObject. Source: GroupCoordinator.send_object.
absl::Status SendObject(client::Group& group, const Value& value, int to,
                        const client::CallOptions& options = {});
// Blocks until the value has arrived. Errors: INVALID_ARGUMENT (`from` is not another rank of the
// group; the object is not a value, for example one of Group::SendObject); the sender's error, if
// its value could not be sent; those of Allocate and of Group::ReceiveObject. Source:
// GroupCoordinator.recv_object.
absl::StatusOr<Value> ReceiveObject(client::Group& group, int from,
                                    const client::CallOptions& options = {});

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_TENSOR_MAP_OBJECTS_H_
