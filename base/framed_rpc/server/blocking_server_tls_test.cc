// BlockingServer with a client by TLS, over sockets that take few bytes at once.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/blocking_server.h"
#include "base/port/peer/listener_peer.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_session.h"
#include "base/unique_fd.h"
#include "gtest/gtest.h"

namespace cohort::framed_rpc {
namespace {

using ::cohort::testing::CertificateAuthority;

constexpr int kWaitMs = 20000;
constexpr int kSocketBytes = 4096;
constexpr int64_t kMaxMessageBytes = 1 << 20;
constexpr char kHello[] = "test.Service/Echo\n";

class EchoHandler final : public BlockingHandler {
 public:
  absl::Status Run(uint16_t /*method*/, absl::string_view request, PeerAccess* /*access*/,
                   std::string* answer, std::shared_ptr<const void>* /*kept*/) override {
    answer->append(request.data(), request.size());
    return absl::OkStatus();
  }
};

std::string CallFrame(uint32_t id, const std::string& body) {
  Header header;
  header.kind = Kind::kCall;
  header.call = id;
  header.body_bytes = static_cast<uint32_t>(body.size());
  header.extra = kNoTimeout;
  std::string frame;
  AppendHeader(header, &frame);
  return frame + body;
}

class BlockingServerTlsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const CertificateAuthority ca(::testing::TempDir());
    TlsFiles files = ca.Sign("server", {"server", "DNS:localhost"});
    const TlsFiles trusted{"", "", files.ca};
    files.ca.clear();
    const auto at_server = TlsContext::Load(files, TlsSide::kServer);
    const auto at_client = TlsContext::Load(trusted, TlsSide::kClient);
    ASSERT_TRUE(at_server.ok() && at_client.ok()) << at_server.status() << at_client.status();
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    for (const int end : ends) {
      setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kSocketBytes, sizeof(kSocketBytes));
    }
    fd_ = UniqueFd(ends[1]);
    ListenerPeer peer;
    peer.tls = TlsSession::Accept((*at_server)->Current(absl::UnixEpoch()), ends[0]);
    tls_ = TlsSession::Connect((*at_client)->Current(absl::UnixEpoch()), ends[1], "localhost");
    TlsSession::Progress near = TlsSession::Progress::kWantInput;
    TlsSession::Progress far = near;
    for (int i = 0; i < 10 && (near != TlsSession::Progress::kDone || far != near); ++i) {
      near = tls_->Handshake();
      far = peer.tls->Handshake();
    }
    ASSERT_EQ(near, TlsSession::Progress::kDone) << tls_->error();
    ASSERT_EQ(far, TlsSession::Progress::kDone) << peer.tls->error();
    has_request_ = peer.has_request;
    server_.Adopt(ends[0], std::move(peer));
  }

  // Sends all of it, unless the server takes nothing for a while.
  void Send(absl::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = tls_->Send(bytes);
      if (sent < 0 && !Await(POLLOUT)) return;
      bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    }
  }
  // Returns fewer bytes at the end of the connection, and if none come for a while.
  std::string Read(size_t bytes) {
    std::string read(bytes, '\0');
    size_t done = 0;
    while (done < bytes) {
      const ssize_t count = tls_->Receive(&read[done], bytes - done);
      if (count == 0 || (count < 0 && !Await(POLLIN))) break;
      done += static_cast<size_t>(std::max<ssize_t>(count, 0));
    }
    return read.substr(0, done);
  }
  void Greet() {
    Send(kPreface);
    const size_t before = kPreface.size() + kHeaderBytes;
    ASSERT_EQ(Read(before + sizeof(kHello) - 1).substr(before), kHello);
  }
  bool Await(short event) {
    pollfd ready = {fd_.get(), event, 0};
    const bool is_ready = poll(&ready, 1, kWaitMs) == 1;
    EXPECT_TRUE(is_ready) << "nothing came or went in time";
    return is_ready;
  }

  EchoHandler handler_;
  std::shared_ptr<std::atomic<bool>> has_request_;  // of the listener
  UniqueFd fd_;
  std::shared_ptr<TlsSession> tls_;
  BlockingServer server_{{kMaxMessageBytes, 3}, {"test.Service/Echo"}, handler_};
};

TEST_F(BlockingServerTlsTest, RequestsAndAnswersOfAnySize) {
  Greet();
  for (const size_t size : {size_t{0}, size_t{1}, size_t{5000}, size_t{kMaxMessageBytes}}) {
    std::string body(size, 'x');
    for (size_t i = 0; i < size; ++i) body[i] = static_cast<char>(i * 7 % 251);
    const std::string call = CallFrame(static_cast<uint32_t>(size + 1), body);
    // In two parts, so that the server waits within a frame.
    Send(absl::string_view(call).substr(0, call.size() / 2));
    Send(absl::string_view(call).substr(call.size() / 2));
    EXPECT_TRUE(Read(kHeaderBytes + size).substr(kHeaderBytes) == body) << size;
  }
}

TEST_F(BlockingServerTlsTest, TheListenerLearnsOfTheFirstCall) {
  Greet();
  EXPECT_FALSE(has_request_->load());
  Send(CallFrame(1, "x"));
  EXPECT_EQ(Read(kHeaderBytes + 1).back(), 'x');
  EXPECT_TRUE(has_request_->load());
}

TEST_F(BlockingServerTlsTest, StopEndsAnIdleConnection) {
  Greet();
  server_.Stop(absl::ZeroDuration());
  EXPECT_EQ(Read(1), "");
}

TEST_F(BlockingServerTlsTest, StopEndsAConnectionWhoseClientTakesNoAnswer) {
  Greet();
  Send(CallFrame(1, std::string(kMaxMessageBytes, 'x')));
  EXPECT_EQ(Read(kHeaderBytes).size(), kHeaderBytes);  // the answer has begun
  server_.Stop(absl::ZeroDuration());
}

}  // namespace
}  // namespace cohort::framed_rpc
