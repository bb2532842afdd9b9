// Every unary method of the protos, as a value: its names, and how to call it in this thread or to
// start it.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_METHODS_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_METHODS_H_

#include <functional>

#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/group.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "cohort/v1/unique_id.grpc.pb.h"
#include "grpcpp/client_context.h"

namespace cohort::client {

template <typename ServiceType, typename RequestType, typename ResponseType>
struct Method {
  using Service = ServiceType;
  using Request = RequestType;
  using Response = ResponseType;
  using Stub = typename Service::StubInterface;

  const char* name;
  const char* path;  // such as cohort.v1.GroupService/Join
  grpc::Status (Stub::*call)(grpc::ClientContext*, const Request&, Response*);
  void (Stub::async_interface::*start)(grpc::ClientContext*, const Request*, Response*,
                                       std::function<void(grpc::Status)>);
};

namespace method {

// The wire names requests and responses after their method, so one word says all.
#define COHORT_METHOD_(service, name)                                                            \
  inline constexpr Method<v1::service, v1::name##Request, v1::name##Response> k##name {          \
    #name, "cohort.v1." #service "/" #name, &v1::service::StubInterface::name,                         \
        &v1::service::StubInterface::async_interface::name                                       \
  }

COHORT_METHOD_(GroupService, Join);
COHORT_METHOD_(GroupService, Leave);
COHORT_METHOD_(GroupService, KeepAlive);
COHORT_METHOD_(GroupService, GetGroup);
COHORT_METHOD_(GroupService, ListGroups);
COHORT_METHOD_(GroupService, ProposeView);
COHORT_METHOD_(GroupService, AckView);
COHORT_METHOD_(GroupService, ReportError);
COHORT_METHOD_(GroupService, AgreeAlive);
COHORT_METHOD_(GroupService, Vote);
COHORT_METHOD_(GroupService, CloseGroup);

COHORT_METHOD_(MessagingService, Send);
COHORT_METHOD_(MessagingService, Receive);
COHORT_METHOD_(MessagingService, Broadcast);
COHORT_METHOD_(MessagingService, AllGather);
COHORT_METHOD_(MessagingService, Gather);
COHORT_METHOD_(MessagingService, Scatter);
COHORT_METHOD_(MessagingService, Barrier);
COHORT_METHOD_(MessagingService, CancelBarrier);
COHORT_METHOD_(MessagingService, Expire);
COHORT_METHOD_(MessagingService, Stats);

COHORT_METHOD_(StoreService, Put);
COHORT_METHOD_(StoreService, Get);
COHORT_METHOD_(StoreService, Range);
COHORT_METHOD_(StoreService, Delete);
COHORT_METHOD_(StoreService, Add);
COHORT_METHOD_(StoreService, Append);
COHORT_METHOD_(StoreService, QueuePush);
COHORT_METHOD_(StoreService, QueuePop);

COHORT_METHOD_(UniqueIdService, Publish);
COHORT_METHOD_(UniqueIdService, Fetch);
COHORT_METHOD_(UniqueIdService, ReportInit);

COHORT_METHOD_(AdminService, WhoIsMissing);
COHORT_METHOD_(AdminService, DumpWaits);
COHORT_METHOD_(AdminService, Limits);
COHORT_METHOD_(AdminService, Drain);
COHORT_METHOD_(AdminService, Evict);
COHORT_METHOD_(AdminService, ServerStats);

#undef COHORT_METHOD_

}  // namespace method
}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_METHODS_H_
