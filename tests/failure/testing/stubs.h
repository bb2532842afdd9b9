// Generated stubs of all services on one channel, for callers that do not follow the client
// library's rules.
#ifndef COHORT_TESTS_FAILURE_TESTING_STUBS_H_
#define COHORT_TESTS_FAILURE_TESTING_STUBS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cohort/v1/admin.grpc.pb.h"
#include "cohort/v1/group.grpc.pb.h"
#include "cohort/v1/messaging.grpc.pb.h"
#include "cohort/v1/store.grpc.pb.h"
#include "cohort/v1/unique_id.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace cohort::testing {

struct Stubs {
  // `number` keeps channels to one address apart: gRPC lets equal ones share a connection.
  explicit Stubs(const std::string& address, int number = 0) {
    grpc::ChannelArguments arguments;
    arguments.SetInt("cohort.test.channel", number);
    arguments.SetMaxSendMessageSize(-1);
    arguments.SetMaxReceiveMessageSize(-1);
    Use(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
  }
  explicit Stubs(std::shared_ptr<grpc::Channel> used) { Use(std::move(used)); }

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<v1::GroupService::Stub> groups;
  std::unique_ptr<v1::MessagingService::Stub> messages;
  std::unique_ptr<v1::StoreService::Stub> store;
  std::unique_ptr<v1::UniqueIdService::Stub> unique_ids;
  std::unique_ptr<v1::AdminService::Stub> admin;

 private:
  void Use(std::shared_ptr<grpc::Channel> used) {
    channel = std::move(used);
    groups = v1::GroupService::NewStub(channel);
    messages = v1::MessagingService::NewStub(channel);
    store = v1::StoreService::NewStub(channel);
    unique_ids = v1::UniqueIdService::NewStub(channel);
    admin = v1::AdminService::NewStub(channel);
  }
};

// A context whose call ends after `timeout` at the latest.
inline std::unique_ptr<grpc::ClientContext> Context(absl::Duration timeout = absl::Seconds(30)) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  return context;
}

inline v1::JoinRequest JoinRequestOf(const std::string& group, int rank, int world_size) {
  v1::JoinRequest request;
  request.mutable_scope()->set_group(group);
  request.set_member(absl::StrCat("rank-", rank));
  request.set_incarnation(1000 + rank);
  request.set_rank(rank);
  request.mutable_spec()->set_min_members(world_size);
  request.mutable_spec()->set_max_members(world_size);
  request.mutable_wait()->set_seconds(60);
  return request;
}

}  // namespace cohort::testing

#endif  // COHORT_TESTS_FAILURE_TESTING_STUBS_H_
