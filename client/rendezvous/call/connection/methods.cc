#include "client/rendezvous/call/connection/methods.h"

#include <utility>

#include "client/rendezvous/call/connection/stubs.h"
#include "client/rendezvous/report/report_codec.h"

namespace cohort::client {
namespace {

using Message = MethodInfo::Message;
using Context = grpc::ClientContext;

// Calls by gRPC, for messages of unknown type.
template <typename Service, typename Request, typename Response>
struct Grpc {
  using Stub = typename Service::StubInterface;

  template <grpc::Status (Stub::*kCall)(Context*, const Request&, Response*)>
  static grpc::Status Call(Stubs& stubs, Context* context, const Message& request,
                           Message* response) {
    return (stubs.Get<Service>().*kCall)(context, static_cast<const Request&>(request),
                                         static_cast<Response*>(response));
  }
  template <void (Stub::async_interface::*kStart)(Context*, const Request*, Response*,
                                                  std::function<void(grpc::Status)>)>
  static void Start(Stubs& stubs, Context* context, const Message* request, Message* response,
                    std::function<void(grpc::Status)> done) {
    (stubs.Get<Service>().async()->*kStart)(context, static_cast<const Request*>(request),
                                            static_cast<Response*>(response), std::move(done));
  }
};

using WaitSetter = void (*)(absl::Duration, Message&);

// Requests differ in where they keep their `wait`, if they have one.
template <typename Request>
constexpr auto SetWait(int) -> decltype(std::declval<Request&>().mutable_wait(), WaitSetter()) {
  return [](absl::Duration wait, Message& request) {
    ToProto(wait, static_cast<Request&>(request).mutable_wait());
  };
}
template <typename Request>
constexpr auto SetWait(int) -> decltype(std::declval<Request&>().mutable_round(), WaitSetter()) {
  return [](absl::Duration wait, Message& request) {
    ToProto(wait, static_cast<Request&>(request).mutable_round()->mutable_wait());
  };
}
template <typename Request>
constexpr WaitSetter SetWait(long) {  // NOLINT: the worse overload
  return nullptr;
}

}  // namespace

namespace method {

#define COHORT_METHOD_(service, name)                                               \
  constexpr Method<v1::name##Request, v1::name##Response> k##name{                  \
      {#name, "cohort.v1." #service "/" #name,                                      \
       &Grpc<v1::service, v1::name##Request,                                        \
             v1::name##Response>::template Call<&v1::service::StubInterface::name>, \
       &Grpc<v1::service, v1::name##Request, v1::name##Response>::template Start<   \
           &v1::service::StubInterface::async_interface::name>,                     \
       SetWait<v1::name##Request>(0)}};
COHORT_UNARY_METHODS(COHORT_METHOD_)
#undef COHORT_METHOD_

}  // namespace method
}  // namespace cohort::client
