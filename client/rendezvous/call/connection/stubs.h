// gRPC's stubs of a connection. The generated headers are large: only files that open streams, and
// methods.cc, include this one.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_STUBS_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_STUBS_H_

#include <memory>
#include <tuple>

#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/group.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "cohort/v1/unique_id.grpc.pb.h"

namespace cohort::client {

// Thread-safe.
class Stubs {
 public:
  explicit Stubs(const std::shared_ptr<grpc::ChannelInterface>& channel)
      : stubs_(v1::GroupService::NewStub(channel), v1::MessagingService::NewStub(channel),
               v1::StoreService::NewStub(channel), v1::UniqueIdService::NewStub(channel),
               v1::AdminService::NewStub(channel)) {}

  template <typename Service>
  typename Service::StubInterface& Get() {
    return *std::get<std::unique_ptr<typename Service::StubInterface>>(stubs_);
  }

 private:
  std::tuple<std::unique_ptr<v1::GroupService::StubInterface>,
             std::unique_ptr<v1::MessagingService::StubInterface>,
             std::unique_ptr<v1::StoreService::StubInterface>,
             std::unique_ptr<v1::UniqueIdService::StubInterface>,
             std::unique_ptr<v1::AdminService::StubInterface>>
      stubs_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_STUBS_H_
