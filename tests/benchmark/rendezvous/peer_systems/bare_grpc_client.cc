#include "tests/benchmark/rendezvous/peer_systems/bare_grpc_client.h"

#include <grpcpp/grpcpp.h>

#include <utility>

namespace cohort::benchmark {
namespace {

absl::Status ToAbsl(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// The objects of an asynchronous call, which live until it ends.
struct Call {
  grpc::ClientContext context;
  ParkRequest request;
  EchoResponse response;
  std::function<void(const absl::Status&)> done;
};

void Fill(uint64_t round, int expected, int64_t request_bytes, int64_t reply_bytes,
          ParkRequest& request) {
  request.set_round(round);
  request.set_expected(expected);
  request.set_payload(std::string(request_bytes, 'x'));
  request.set_reply_bytes(reply_bytes);
}

}  // namespace

BareGrpcClient::BareGrpcClient(const std::string& address, int connections) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  for (int i = 0; i < connections; ++i) {
    stubs_.push_back(Echo::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
  }
}

void BareGrpcClient::ParkAsync(int member, uint64_t round, int expected, int64_t request_bytes,
                               int64_t reply_bytes, std::function<void(const absl::Status&)> done) {
  auto* call = new Call;
  call->context.set_wait_for_ready(true);
  Fill(round, expected, request_bytes, reply_bytes, call->request);
  call->done = std::move(done);
  StubOf(member).async()->Park(&call->context, &call->request, &call->response,
                               [call](grpc::Status status) {
                                 call->done(ToAbsl(status));
                                 delete call;
                               });
}

absl::Status BareGrpcClient::Park(int member, uint64_t round, int expected, int64_t request_bytes,
                                  int64_t reply_bytes) {
  grpc::ClientContext context;
  ParkRequest request;
  EchoResponse response;
  Fill(round, expected, request_bytes, reply_bytes, request);
  return ToAbsl(StubOf(member).Park(&context, request, &response));
}

absl::Status BareGrpcClient::EchoOnce(int caller, int64_t request_bytes, int64_t reply_bytes) {
  grpc::ClientContext context;
  context.set_wait_for_ready(true);
  EchoRequest request;
  EchoResponse response;
  request.set_payload(std::string(request_bytes, 'x'));
  request.set_reply_bytes(reply_bytes);
  return ToAbsl(StubOf(caller).Echo(&context, request, &response));
}

absl::Status BareGrpcClient::Connect() {
  for (size_t i = 0; i < stubs_.size(); ++i) {
    absl::Status status = EchoOnce(static_cast<int>(i), 0, 0);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace cohort::benchmark
