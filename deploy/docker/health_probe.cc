// Asks a gRPC server's health service, for a container's health check.
//
//   cohort-health ADDRESS [TIMEOUT]        exits with 0 if it serves within TIMEOUT (2s)
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/rpc/grpc_deadline.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/completion_queue.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/byte_buffer.h"

namespace cohort {
namespace {

constexpr char kMethod[] = "/grpc.health.v1.Health/Check";
// A HealthCheckResponse whose first field, `status`, is SERVING. The request for the server as a
// whole has no bytes: so no generated code is needed.
constexpr char kServing[] = "\x08\x01";

std::string Bytes(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  std::string bytes;
  if (!buffer.Dump(&slices).ok()) return bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

int Main(int argc, char** argv) {
  absl::Duration timeout = absl::Seconds(2);
  if (argc < 2 || argc > 3 || (argc == 3 && !absl::ParseDuration(argv[2], &timeout))) {
    std::fputs("usage: cohort-health ADDRESS [TIMEOUT]\n", stderr);
    return 2;
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  grpc::GenericStub stub(
      grpc::CreateCustomChannel(argv[1], grpc::InsecureChannelCredentials(), arguments));
  grpc::ClientContext context;
  // A server that is just starting is waited for.
  context.set_wait_for_ready(true);
  context.set_deadline(cohort::GrpcDeadline(timeout));
  grpc::CompletionQueue queue;
  const grpc::Slice nothing("");
  const grpc::ByteBuffer request(&nothing, 1);
  const auto call = stub.PrepareUnaryCall(&context, kMethod, request, &queue);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, &queue);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  if (!status.ok()) {
    std::fprintf(stderr, "cohort-health: %s: %s\n", argv[1], status.error_message().c_str());
    return 1;
  }
  if (Bytes(response) != kServing) {
    std::fprintf(stderr, "cohort-health: %s does not serve now\n", argv[1]);
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace cohort

int main(int argc, char** argv) { return cohort::Main(argc, argv); }
