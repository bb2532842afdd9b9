// A client of the tenant "flood" that calls as fast as the coordinator answers, over many
// connections, until it is killed.
//
//   tenant_flood --coordinator 127.0.0.1:7700 --protocol framed --connections 16
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/str_split.h"
#include "base/framed_rpc/frame.h"
#include "cohort/v1/store.grpc.pb.h"
#include "grpcpp/grpcpp.h"

namespace cohort::benchmark {
namespace {

constexpr int kCallsAtOnce = 64;  // of each connection

v1::PutRequest MakeRequest(int bytes) {
  v1::PutRequest request;
  request.mutable_scope()->set_tenant("flood");
  request.set_key("key");
  request.set_value(std::string(static_cast<size_t>(bytes), 'x'));
  return request;
}

int ConnectTo(const std::string& address) {
  const size_t colon = address.rfind(':');
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &name.sin_addr);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0 || connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof(name)) != 0) return -1;
  return fd;
}

// Reads the greeting. Returns the number of the method; negative: the server does not have it.
int MethodNumber(int fd, const std::string& method) {
  std::string bytes;
  char buffer[4096];
  framed_rpc::FrameReader reader(1 << 20);
  bool greeted = false;
  while (true) {
    const ssize_t count = recv(fd, buffer, sizeof(buffer), 0);
    if (count <= 0) return -1;
    char* const room = reader.Room(static_cast<size_t>(count));
    std::copy(buffer, buffer + count, room);
    reader.Filled(static_cast<size_t>(count));
    absl::string_view preface;
    if (!greeted && reader.Peek(framed_rpc::kPreface.size(), &preface)) {
      reader.Skip(framed_rpc::kPreface.size());
      greeted = true;
    }
    framed_rpc::Frame frame;
    if (!greeted || reader.Read(&frame) != framed_rpc::FrameReader::Next::kFrame) continue;
    int number = 0;
    for (const absl::string_view name : absl::StrSplit(frame.body, '\n')) {
      if (name == method) return number;
      ++number;
    }
    return -1;
  }
}

int FloodWithFrames(const std::string& address, int connections, int bytes) {
  const std::string body = MakeRequest(bytes).SerializeAsString();
  std::vector<pollfd> fds;
  int method = -1;
  for (int i = 0; i < connections; ++i) {
    const int fd = ConnectTo(address);
    if (fd < 0 || send(fd, framed_rpc::kPreface.data(), framed_rpc::kPreface.size(), 0) < 0) {
      std::perror("connect");
      return 1;
    }
    method = MethodNumber(fd, "cohort.v1.StoreService/Put");
    if (method < 0) {
      std::fprintf(stderr, "no framed RPC at %s\n", address.c_str());
      return 1;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    fds.push_back({fd, POLLIN | POLLOUT, 0});
  }
  std::string batch;
  for (int call = 0; call < kCallsAtOnce; ++call) {
    framed_rpc::Header header;
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.call = static_cast<uint32_t>(call);
    header.kind = framed_rpc::Kind::kCall;
    header.method = static_cast<uint16_t>(method);
    header.extra = framed_rpc::kNoTimeout;
    framed_rpc::AppendHeader(header, &batch);
    batch += body;
  }
  std::vector<size_t> sent(fds.size());
  std::vector<char> trash(1 << 20);
  while (true) {
    if (poll(fds.data(), fds.size(), -1) < 0) return 1;
    for (size_t i = 0; i < fds.size(); ++i) {
      if ((fds[i].revents & POLLIN) != 0) {
        const ssize_t count = recv(fds[i].fd, trash.data(), trash.size(), 0);
        if (count == 0 || (count < 0 && errno != EAGAIN)) return 1;
      }
      if ((fds[i].revents & POLLOUT) == 0) continue;
      const ssize_t count =
          send(fds[i].fd, batch.data() + sent[i], batch.size() - sent[i], MSG_NOSIGNAL);
      if (count < 0 && errno != EAGAIN) return 1;
      if (count > 0) sent[i] = (sent[i] + static_cast<size_t>(count)) % batch.size();
    }
  }
}

struct Pending {
  std::unique_ptr<v1::StoreService::Stub> const& stub;
  grpc::ClientContext context;
  v1::PutResponse response;
  grpc::Status status;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::PutResponse>> reader;
};

int FloodWithGrpc(const std::string& address, int connections, int bytes) {
  const v1::PutRequest request = MakeRequest(bytes);
  grpc::CompletionQueue queue;
  std::vector<std::unique_ptr<v1::StoreService::Stub>> stubs;
  const auto call = [&](const std::unique_ptr<v1::StoreService::Stub>& stub) {
    auto* const pending = new Pending{stub, {}, {}, {}, nullptr};
    pending->reader = stub->AsyncPut(&pending->context, request, &queue);
    pending->reader->Finish(&pending->response, &pending->status, pending);
  };
  for (int i = 0; i < connections; ++i) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stubs.push_back(v1::StoreService::NewStub(
        grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments)));
  }
  for (const auto& stub : stubs) {
    for (int i = 0; i < kCallsAtOnce; ++i) call(stub);
  }
  void* tag = nullptr;
  bool ok = false;
  while (queue.Next(&tag, &ok)) {
    const std::unique_ptr<Pending> done(static_cast<Pending*>(tag));
    if (!done->status.ok()) {
      std::fprintf(stderr, "%s\n", done->status.error_message().c_str());
      return 1;
    }
    call(done->stub);
  }
  return 1;
}

}  // namespace
}  // namespace cohort::benchmark

int main(int argc, char** argv) {
  std::string address, protocol = "framed";
  int connections = 16, bytes = 64;
  CLI::App app("Calls a coordinator as fast as it answers, until it is killed");
  app.add_option("--coordinator", address, "HOST:PORT")->required();
  app.add_option("--protocol", protocol, "framed or grpc");
  app.add_option("--connections", connections, "how many");
  app.add_option("--bytes", bytes, "of each value");
  CLI11_PARSE(app, argc, argv);
  return protocol == "grpc" ? cohort::benchmark::FloodWithGrpc(address, connections, bytes)
                            : cohort::benchmark::FloodWithFrames(address, connections, bytes);
}
