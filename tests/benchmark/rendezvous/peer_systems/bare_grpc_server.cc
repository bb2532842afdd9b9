// The server of bare gRPC: callback API, parked calls answered together, no other state.
//
// It is as fast as gRPC's public interface allows: equal answers of one round are serialized once
// and share their memory, and only a push into a vector runs under the lock.
//
//   bazel run --config=opt //tests/benchmark/rendezvous/peer_systems:bare_grpc_server -- --listen
//   127.0.0.1:0
//       --port-file /tmp/port
#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/base/thread_annotations.h"
#include "base/threads/mutex.h"
#include "tests/benchmark/rendezvous/peer_systems/echo.grpc.pb.h"

namespace cohort::benchmark {
namespace {

grpc::ByteBuffer MakeReply(int64_t bytes) {
  EchoResponse response;
  response.set_payload(std::string(bytes, 'x'));
  grpc::ByteBuffer buffer;
  bool own = false;
  grpc::SerializationTraits<EchoResponse>::Serialize(response, &buffer, &own).IgnoreError();
  return buffer;
}

class ParkedCall final : public grpc::ServerUnaryReactor {
 public:
  ParkedCall(grpc::ByteBuffer* response, int64_t reply_bytes)
      : response_(response), reply_bytes_(reply_bytes) {}

  int64_t reply_bytes() const { return reply_bytes_; }
  void Answer(const grpc::ByteBuffer& reply) {
    *response_ = reply;
    Finish(grpc::Status::OK);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer* const response_;
  const int64_t reply_bytes_;
};

using Base = Echo::WithRawCallbackMethod_Park<Echo::WithCallbackMethod_Echo<Echo::Service>>;

class BareGrpcService final : public Base {
 public:
  using Base::Echo;
  using Base::Park;

  grpc::ServerUnaryReactor* Echo(grpc::CallbackServerContext* context, const EchoRequest* request,
                                 EchoResponse* response) override {
    response->set_payload(std::string(request->reply_bytes(), 'x'));
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  grpc::ServerUnaryReactor* Park(grpc::CallbackServerContext*, const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override {
    ParkRequest park;
    grpc::ByteBuffer buffer(*request);
    grpc::Status parsed = grpc::SerializationTraits<ParkRequest>::Deserialize(&buffer, &park);
    auto* call = new ParkedCall(response, park.reply_bytes());
    if (!parsed.ok()) {
      call->Finish(parsed);
      return call;
    }
    std::vector<ParkedCall*> released;
    {
      MutexLock lock(&mutex_);
      std::vector<ParkedCall*>& round = rounds_[park.round()];
      round.push_back(call);
      if (round.size() == park.expected()) {
        released = std::move(round);
        rounds_.erase(park.round());
      }
    }
    grpc::ByteBuffer reply;
    int64_t reply_bytes = -1;
    for (ParkedCall* parked : released) {
      if (parked->reply_bytes() != reply_bytes) {
        reply_bytes = parked->reply_bytes();
        reply = MakeReply(reply_bytes);
      }
      parked->Answer(reply);
    }
    return call;
  }

 private:
  Mutex mutex_;
  // A call whose client has gone stays until the process ends; the driver waits for all its calls.
  std::unordered_map<uint64_t, std::vector<ParkedCall*>> rounds_ ABSL_GUARDED_BY(mutex_);
};

int Serve(const std::string& listen, const std::string& port_file) {
  BareGrpcService service;
  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(-1);
  builder.RegisterService(&service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || port == 0) {
    std::fprintf(stderr, "cannot listen on %s\n", listen.c_str());
    return 1;
  }
  if (!port_file.empty()) std::ofstream(port_file) << port << "\n";
  server->Wait();  // until a signal ends the process
  return 0;
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  std::string listen = "127.0.0.1:0";
  std::string port_file;
  CLI::App app("Bare gRPC, as an implementation of the rendezvous benchmark");
  app.add_option("--listen", listen, "HOST:PORT; port 0 picks one");
  app.add_option("--port-file", port_file, "where to write the port that was picked");
  CLI11_PARSE(app, argc, argv);
  return cohort::benchmark::Serve(listen, port_file);
}
