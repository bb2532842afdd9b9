// A framed RPC server that a test plays frame by frame.
#ifndef COHORT_BASE_FRAMED_RPC_CLIENT_TESTING_FAKE_FRAMED_RPC_SERVER_H_
#define COHORT_BASE_FRAMED_RPC_CLIENT_TESTING_FAKE_FRAMED_RPC_SERVER_H_

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/framed_rpc/client/client_connection.h"
#include "base/framed_rpc/frame.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {

// One peer, whose socket blocks.
class FakeServerConnection {
 public:
  explicit FakeServerConnection(int fd) : fd_(fd) {}
  ~FakeServerConnection() { Close(); }

  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void Send(const std::string& bytes) {
    ASSERT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void SendFrame(Header header, const std::string& body) {
    header.body_bytes = static_cast<uint32_t>(body.size());
    std::string bytes;
    AppendHeader(header, &bytes);
    Send(bytes + body);
  }
  void Reply(uint32_t call, const std::string& body) {
    Header header;
    header.call = call;
    header.kind = Kind::kReply;
    SendFrame(header, body);
  }
  void Greet(const std::string& names = "a/One\na/Two\n") {
    char preface[8];
    ASSERT_EQ(recv(fd_, preface, sizeof(preface), MSG_WAITALL), 8);
    EXPECT_EQ(absl::string_view(preface, 8), kPreface);
    Send(std::string(kPreface));
    Header header;
    header.kind = Kind::kHello;
    SendFrame(header, names);
  }
  // The next frame; absent when the other end has gone.
  std::optional<Header> Next(std::string* body = nullptr) {
    Frame frame;
    while (reader_.Read(&frame) != FrameReader::Next::kFrame) {
      const ssize_t count = recv(fd_, reader_.Room(4096), 4096, 0);
      if (count <= 0) return std::nullopt;
      reader_.Filled(static_cast<size_t>(count));
    }
    if (body != nullptr) *body = std::string(frame.body);
    return frame.header;
  }

 private:
  int fd_;
  FrameReader reader_{size_t{1} << 20};
};

// Where connections come to, on a port of its own.
class FakeServer {
 public:
  FakeServer() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr* const name = reinterpret_cast<sockaddr*>(&address_.storage);
    in()->sin_family = AF_INET;
    in()->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address_.size = sizeof(sockaddr_in);
    EXPECT_EQ(bind(listener_, name, address_.size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t size = sizeof(sockaddr_storage);
    EXPECT_EQ(getsockname(listener_, name, &size), 0);
  }
  ~FakeServer() { close(listener_); }
  FakeServer(const FakeServer&) = delete;
  FakeServer& operator=(const FakeServer&) = delete;

  const SocketAddress& address() const { return address_; }
  int port() { return ntohs(in()->sin_port); }
  // Whether Accept has a connection to return.
  bool HasConnection() const {
    pollfd waited{listener_, POLLIN, 0};
    return poll(&waited, 1, 0) > 0;
  }
  // Blocks until a client connects.
  std::unique_ptr<FakeServerConnection> Accept() {
    return std::make_unique<FakeServerConnection>(
        accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  sockaddr_in* in() { return reinterpret_cast<sockaddr_in*>(&address_.storage); }

  const int listener_;
  SocketAddress address_;
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_CLIENT_TESTING_FAKE_FRAMED_RPC_SERVER_H_
