// A framed RPC client on a bare socket, for tests.
#ifndef COHORT_BASE_FRAMED_RPC_SERVER_TESTING_FRAMED_RPC_TEST_CLIENT_H_
#define COHORT_BASE_FRAMED_RPC_SERVER_TESTING_FRAMED_RPC_TEST_CLIENT_H_

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "base/framed_rpc/frame.h"
#include "google/protobuf/message_lite.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {

struct TestReply {
  Header header;
  std::string body;

  absl::StatusCode code() const { return static_cast<absl::StatusCode>(header.code); }
  std::string text() const { return body.substr(0, header.extra); }
};

// Blocks, for at most 20 seconds.
class TestClient {
 public:
  // Takes `fd`, a connected socket.
  explicit TestClient(int fd) : fd_(fd) { SetReadTimeout(); }
  // host:port or unix:/path.
  explicit TestClient(const std::string& address) {
    if (absl::StartsWith(address, "unix:")) {
      sockaddr_un name = {};
      name.sun_family = AF_UNIX;
      address.copy(name.sun_path, sizeof(name.sun_path) - 1, 5);
      Connect(AF_UNIX, reinterpret_cast<sockaddr*>(&name), sizeof(name));
      return;
    }
    const size_t colon = address.rfind(':');
    sockaddr_in name = {};
    name.sin_family = AF_INET;
    name.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &name.sin_addr);
    Connect(AF_INET, reinterpret_cast<sockaddr*>(&name), sizeof(name));
  }
  ~TestClient() { Close(); }

  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      ASSERT_GT(sent, 0);
      bytes.remove_prefix(static_cast<size_t>(sent));
    }
  }
  // Whether all of it went without waiting for a second.
  bool TrySend(absl::string_view bytes) {
    const timeval second = {1, 0};
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &second, sizeof(second));
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  void Greet() {
    Send(kPreface);
    AwaitGreeting();
  }
  void AwaitGreeting() {
    ASSERT_EQ(Take(kPreface.size()), kPreface);
    const std::optional<TestReply> hello = Next();
    ASSERT_TRUE(hello.has_value());
    ASSERT_EQ(hello->header.kind, Kind::kHello);
    methods_ = absl::StrSplit(hello->body, '\n', absl::SkipEmpty());
  }
  std::string Frame(Kind kind, uint32_t call, const std::string& method, const std::string& body) {
    Header header;
    header.kind = kind;
    header.call = call;
    header.body_bytes = static_cast<uint32_t>(body.size());
    header.extra = kNoTimeout;
    if (!method.empty()) header.method = Number(method);
    std::string bytes;
    AppendHeader(header, &bytes);
    return bytes + body;
  }
  void Call(uint32_t call, const std::string& method,
            const google::protobuf::MessageLite& request) {
    Send(Frame(Kind::kCall, call, method, request.SerializeAsString()));
  }
  std::string Take(size_t size) {
    std::string bytes(size, '\0');
    EXPECT_EQ(recv(fd_, &bytes[0], size, MSG_WAITALL), static_cast<ssize_t>(size));
    return bytes;
  }
  // Whether Next has something to read, or the server has closed.
  bool HasInput() const {
    pollfd waited{fd_, POLLIN, 0};
    return poll(&waited, 1, 0) > 0;
  }
  // Absent when the server has closed.
  std::optional<TestReply> Next() {
    framed_rpc::Frame frame;
    while (reader_.Read(&frame) != FrameReader::Next::kFrame) {
      const ssize_t count = recv(fd_, reader_.Room(65536), 65536, 0);
      if (count <= 0) return std::nullopt;
      reader_.Filled(static_cast<size_t>(count));
    }
    return TestReply{frame.header, std::string(frame.body)};
  }
  uint16_t Number(const std::string& method) {
    for (size_t i = 0; i < methods_.size(); ++i) {
      if (methods_[i] == method) return static_cast<uint16_t>(i);
    }
    ADD_FAILURE() << "no method " << method;
    return 0;
  }
  const std::vector<std::string>& methods() const { return methods_; }

 private:
  void Connect(int family, const sockaddr* name, socklen_t size) {
    fd_ = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    SetReadTimeout();
    EXPECT_EQ(connect(fd_, name, size), 0) << strerror(errno);
  }

  void SetReadTimeout() {
    const timeval timeout = {20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  }

  int fd_ = -1;
  std::vector<std::string> methods_;  // by their number
  FrameReader reader_{size_t{64} << 20};
};

}  // namespace cohort::framed_rpc

#endif  // COHORT_BASE_FRAMED_RPC_SERVER_TESTING_FRAMED_RPC_TEST_CLIENT_H_
