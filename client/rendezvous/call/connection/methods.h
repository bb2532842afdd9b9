// Every unary method of the protos, as a value: its names, and how to call it by gRPC.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_METHODS_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_METHODS_H_

#include <functional>

#include "absl/time/time.h"
#include "cohort/v1/admin.pb.h"
#include "cohort/v1/group.pb.h"
#include "cohort/v1/messaging.pb.h"
#include "cohort/v1/store.pb.h"
#include "cohort/v1/unique_id.pb.h"
#include "google/protobuf/message_lite.h"
#include "grpcpp/support/status.h"

namespace grpc {
class ClientContext;
}

namespace cohort::client {

class Stubs;

// A method without its types. All messages are of the types of the method.
struct MethodInfo {
  using Message = google::protobuf::MessageLite;

  const char* name;
  const char* path;  // such as cohort.v1.GroupService/Join
  // By gRPC; the first one blocks.
  grpc::Status (*call)(Stubs&, grpc::ClientContext*, const Message& request, Message* response);
  void (*start)(Stubs&, grpc::ClientContext*, const Message* request, Message* response,
                std::function<void(grpc::Status)> done);
  // Sets how long the coordinator may wait before it answers; null: it does not wait.
  void (*set_wait)(absl::Duration wait, Message& request);
};

template <typename RequestType, typename ResponseType>
struct Method : MethodInfo {
  using Request = RequestType;
  using Response = ResponseType;
};

// The wire names requests and responses after their method, so one word says all.
#define COHORT_UNARY_METHODS(X)      \
  X(GroupService, Join)              \
  X(GroupService, Leave)             \
  X(GroupService, KeepAlive)         \
  X(GroupService, GetGroup)          \
  X(GroupService, ListGroups)        \
  X(GroupService, ProposeView)       \
  X(GroupService, AckView)           \
  X(GroupService, ReportError)       \
  X(GroupService, AgreeAlive)        \
  X(GroupService, Vote)              \
  X(GroupService, CloseGroup)        \
  X(MessagingService, Send)          \
  X(MessagingService, Receive)       \
  X(MessagingService, Broadcast)     \
  X(MessagingService, AllGather)     \
  X(MessagingService, Gather)        \
  X(MessagingService, Scatter)       \
  X(MessagingService, Barrier)       \
  X(MessagingService, CancelBarrier) \
  X(MessagingService, Expire)        \
  X(MessagingService, Stats)         \
  X(StoreService, Put)               \
  X(StoreService, Get)               \
  X(StoreService, Range)             \
  X(StoreService, Delete)            \
  X(StoreService, Add)               \
  X(StoreService, Append)            \
  X(StoreService, QueuePush)         \
  X(StoreService, QueuePop)          \
  X(UniqueIdService, Publish)        \
  X(UniqueIdService, Fetch)          \
  X(UniqueIdService, ReportInit)     \
  X(AdminService, WhoIsMissing)      \
  X(AdminService, DumpWaits)         \
  X(AdminService, Limits)            \
  X(AdminService, Drain)             \
  X(AdminService, Evict)             \
  X(AdminService, CheckAccess)       \
  X(AdminService, ServerStats)

namespace method {

#define COHORT_METHOD_(service, name) \
  extern const Method<v1::name##Request, v1::name##Response> k##name;
COHORT_UNARY_METHODS(COHORT_METHOD_)
#undef COHORT_METHOD_

}  // namespace method
}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_METHODS_H_
