// A server of the lane, played frame by frame, for tests.
#ifndef COHORT_CLIENT_RENDEZVOUS_TESTING_LANE_PEER_H_
#define COHORT_CLIENT_RENDEZVOUS_TESTING_LANE_PEER_H_

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "base/lane/frame.h"
#include "client/rendezvous/lane_link.h"
#include "gtest/gtest.h"

namespace cohort::client {

// One peer, whose socket blocks.
class LanePeer {
 public:
  explicit LanePeer(int fd) : fd_(fd) {}
  ~LanePeer() { Close(); }

  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  void Send(const std::string& bytes) {
    ASSERT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void SendFrame(lane::Header header, const std::string& body) {
    header.body_bytes = static_cast<uint32_t>(body.size());
    std::string bytes;
    lane::AppendHeader(header, &bytes);
    Send(bytes + body);
  }
  void Reply(uint32_t call, const std::string& body) {
    lane::Header header;
    header.call = call;
    header.kind = lane::Kind::kReply;
    SendFrame(header, body);
  }
  void Greet(const std::string& names = "a/One\na/Two\n") {
    char preface[8];
    ASSERT_EQ(recv(fd_, preface, sizeof(preface), MSG_WAITALL), 8);
    EXPECT_EQ(absl::string_view(preface, 8), lane::kPreface);
    Send(std::string(lane::kPreface));
    lane::Header header;
    header.kind = lane::Kind::kHello;
    SendFrame(header, names);
  }
  // The next frame; absent when the other end has gone.
  std::optional<lane::Header> Next(std::string* body = nullptr) {
    lane::Frame frame;
    while (reader_.Read(&frame) != lane::FrameReader::Next::kFrame) {
      const ssize_t count = recv(fd_, reader_.Room(4096), 4096, 0);
      if (count <= 0) return std::nullopt;
      reader_.Filled(static_cast<size_t>(count));
    }
    if (body != nullptr) *body = std::string(frame.body);
    return frame.header;
  }

 private:
  int fd_;
  lane::FrameReader reader_{size_t{1} << 20};
};

// Where links come to, on a port of its own.
class LaneHost {
 public:
  LaneHost() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr* const name = reinterpret_cast<sockaddr*>(&address_.storage);
    in()->sin_family = AF_INET;
    in()->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address_.size = sizeof(sockaddr_in);
    EXPECT_EQ(bind(listener_, name, address_.size), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t size = sizeof(sockaddr_storage);
    EXPECT_EQ(getsockname(listener_, name, &size), 0);
  }
  ~LaneHost() { close(listener_); }
  LaneHost(const LaneHost&) = delete;
  LaneHost& operator=(const LaneHost&) = delete;

  const SocketAddress& address() const { return address_; }
  int port() { return ntohs(in()->sin_port); }
  // Blocks until somebody comes.
  std::unique_ptr<LanePeer> Accept() {
    return std::make_unique<LanePeer>(accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC));
  }

 private:
  sockaddr_in* in() { return reinterpret_cast<sockaddr_in*>(&address_.storage); }

  const int listener_;
  SocketAddress address_;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_TESTING_LANE_PEER_H_
