#include "tests/fuzz/framed_rpc_check.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/framed_rpc/frame.h"
#include "base/framed_rpc/server/framed_rpc_server.h"
#include "base/rpc/client_names.h"
#include "base/rpc/token_file.h"
#include "base/status_macros.h"
#include "coordinator/journal/memory_journal.h"
#include "coordinator/service/dispatch/dispatcher.h"
#include "coordinator/service/engine/engine.h"
#include "coordinator/service/framed_rpc/framed_rpc_handler.h"

namespace cohort::coordinator::fuzz {
namespace {

constexpr absl::Duration kTimeout = absl::Seconds(10);
constexpr size_t kMaxMessageBytes = 8192;
constexpr int kMaxCalls = 16;
// Calls of scripts have numbers of one byte.
constexpr uint32_t kLastCall = 0x10000;
constexpr char kLastMethod[] = "cohort.v1.AdminService/ServerStats";

absl::Status Violation(absl::string_view what) { return absl::InternalError(what); }

// The server's expected view of a client's bytes; ReadFrames here parses them independently.
struct Expected {
  bool broken = false;            // a frame that no client sends
  bool last_is_answered = false;  // it is not swallowed by the body of another frame
  std::map<uint32_t, int> calls;
};

Expected ReadFrames(const std::string& bytes) {
  const auto number = [&bytes](size_t at, int size) {
    uint32_t value = 0;
    for (int i = size - 1; i >= 0; --i) {
      value = value << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
    }
    return value;
  };
  Expected expected;
  bool has_client = false;
  for (size_t at = 0; bytes.size() - at >= framed_rpc::kHeaderBytes;) {
    const size_t size = number(at, 4);
    const uint32_t call = number(at + 4, 4);
    const uint32_t kind = number(at + 8, 1);
    const bool is_call = kind == static_cast<uint32_t>(framed_rpc::Kind::kCall);
    const bool known = kind >= static_cast<uint32_t>(framed_rpc::Kind::kHello) &&
                       kind <= static_cast<uint32_t>(framed_rpc::Kind::kClient);
    const bool whole = bytes.size() - at - framed_rpc::kHeaderBytes >= size;
    // The server answers a frame that is too large from its header, and rejects an unknown kind
    // there, too.
    if (known && !whole && size <= kMaxMessageBytes) break;
    const bool is_token =
        kind == static_cast<uint32_t>(framed_rpc::Kind::kToken) && size <= kMaxTokenBytes;
    const bool is_client = kind == static_cast<uint32_t>(framed_rpc::Kind::kClient) &&
                           size <= kMaxClientNamesBytes && !std::exchange(has_client, true);
    if (!is_call && !is_token && !is_client && kind != static_cast<uint32_t>(framed_rpc::Kind::kCancel) &&
        kind != static_cast<uint32_t>(framed_rpc::Kind::kNext)) {
      expected.broken = true;
      break;
    }
    if (is_call) ++expected.calls[call];
    if (is_call && call == kLastCall && whole) expected.last_is_answered = true;
    if (!whole) break;
    at += framed_rpc::kHeaderBytes + size;
  }
  // Another call with the same number may wait for ever, and take the place of the answer.
  if (expected.calls[kLastCall] > 1) expected.last_is_answered = false;
  return expected;
}

class Coordinator {
 public:
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start() {
    EngineOptions options;
    options.shards = 2;
    options.server_incarnation = 1;
    auto result = std::make_unique<Coordinator>();
    COHORT_ASSIGN_OR_RETURN(
        result->engine_,
        Engine::Start(options, std::make_unique<MemoryJournal>(), Clock::Steady()));
    DispatcherOptions dispatch;
    dispatch.max_message_bytes = kMaxMessageBytes;
    result->dispatcher_ = std::make_unique<Dispatcher>(dispatch, *result->engine_, nullptr);
    framed_rpc::ServerOptions server;
    server.max_message_bytes = kMaxMessageBytes;
    server.max_concurrent_calls = kMaxCalls;
    auto handler = std::make_shared<FramedRpcHandler>(*result->dispatcher_, absl::Seconds(40));
    std::vector<std::string> methods = handler->MethodNames();
    result->server_ =
        std::make_unique<framed_rpc::Server>(server, std::move(methods), std::move(handler));
    return result;
  }
  ~Coordinator() {
    if (engine_ != nullptr) engine_->Shutdown();
  }

  framed_rpc::Server& server() { return *server_; }
  bool AwaitNobody() { return dispatcher_->AwaitIdle(kTimeout); }
  int64_t waiter_count() { return engine_->Stats().total.waiter_count; }

 private:
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Dispatcher> dispatcher_;
  std::unique_ptr<framed_rpc::Server> server_;
};

// Writes and reads as the socket allows, so that neither side waits for the other.
class Client {
 public:
  Client(int fd, size_t piece) : fd_(fd), piece_(piece) {}
  ~Client() { close(fd_); }

  void Write(absl::string_view bytes) { absl::StrAppend(&unsent_, bytes); }
  void Close() { shutdown(fd_, SHUT_WR); }
  bool closed() const { return closed_; }

  // `there` is false once the server has closed. Errors: INTERNAL (no frame came in time).
  absl::Status Next(bool* there, framed_rpc::Frame* frame) {
    const Instant deadline = Clock::Steady().Now() + kTimeout;
    while (true) {
      switch (input_.Read(frame)) {
        case framed_rpc::FrameReader::Next::kFrame:
          *there = true;
          return absl::OkStatus();
        case framed_rpc::FrameReader::Next::kMore:
          break;
        default:
          return Violation("the server sent a malformed frame");
      }
      COHORT_RETURN_IF_ERROR(ReadOrWrite(deadline));
      if (!closed_) continue;
      *there = false;
      return absl::OkStatus();
    }
  }
  absl::Status Preface() {
    const Instant deadline = Clock::Steady().Now() + kTimeout;
    absl::string_view preface;
    while (!input_.Peek(framed_rpc::kPreface.size(), &preface)) {
      COHORT_RETURN_IF_ERROR(ReadOrWrite(deadline));
      if (closed_) return Violation("the server did not greet");
    }
    if (preface != framed_rpc::kPreface) return Violation("the server greeted otherwise");
    input_.Skip(preface.size());
    return absl::OkStatus();
  }

 private:
  absl::Status ReadOrWrite(Instant deadline) {
    pollfd ready = {fd_, static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0};
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (left <= absl::ZeroDuration() ||
        poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) == 0) {
      return Violation("nothing came from the server in time");
    }
    if ((ready.revents & POLLOUT) != 0 && !unsent_.empty()) {
      const size_t size = std::min(piece_, unsent_.size());
      const ssize_t sent = send(fd_, unsent_.data(), size, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent > 0) unsent_.erase(0, static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN && errno != EINTR) unsent_.clear();  // it has closed
    }
    if ((ready.revents & ~POLLOUT) != 0) {
      const ssize_t count = recv(fd_, input_.Room(65536), 65536, MSG_DONTWAIT);
      if (count > 0) input_.Filled(static_cast<size_t>(count));
      if (count == 0 || (count < 0 && errno != EAGAIN && errno != EINTR)) closed_ = true;
    }
    return absl::OkStatus();
  }

  const int fd_;
  const size_t piece_;
  std::string unsent_;
  framed_rpc::FrameReader input_{size_t{64} << 20};
  bool closed_ = false;
};

absl::StatusOr<uint16_t> NumberOfLastMethod(const framed_rpc::Frame& hello) {
  const std::vector<absl::string_view> methods = absl::StrSplit(hello.body, '\n');
  const auto it = std::find(methods.begin(), methods.end(), kLastMethod);
  if (it == methods.end()) return Violation("the server has no method ServerStats");
  return static_cast<uint16_t>(it - methods.begin());
}

std::string LastCall(uint16_t method) {
  framed_rpc::Header header;
  header.kind = framed_rpc::Kind::kCall;
  header.call = kLastCall;
  header.method = method;
  header.extra = framed_rpc::kNoTimeout;
  std::string bytes;
  framed_rpc::AppendHeader(header, &bytes);
  return bytes;
}

absl::Status Converse(Client& client, const FramedRpcScript& script, FramedRpcCounts& counts) {
  client.Write(framed_rpc::kPreface);
  COHORT_RETURN_IF_ERROR(client.Preface());
  bool there = false;
  framed_rpc::Frame frame;
  COHORT_RETURN_IF_ERROR(client.Next(&there, &frame));
  if (!there || frame.header.kind != framed_rpc::Kind::kHello) return Violation("no hello came");
  COHORT_ASSIGN_OR_RETURN(const uint16_t method, NumberOfLastMethod(frame));

  const std::string bytes = FramedRpcBytes(script) + LastCall(method);
  Expected expected = ReadFrames(bytes);
  client.Write(bytes);
  // The server rightly waits after a frame that was never finished.
  if (!expected.broken && !expected.last_is_answered) return absl::OkStatus();
  while (true) {
    COHORT_RETURN_IF_ERROR(client.Next(&there, &frame));
    if (!there) {
      ++counts.closed;
      return expected.broken ? absl::OkStatus() : Violation("the server closed without cause");
    }
    if (frame.header.kind == framed_rpc::Kind::kPart) {
      if (expected.calls[frame.header.call] > 0) continue;
      return Violation(
          absl::StrCat("a part of the answer to call ", frame.header.call, ", which has ended"));
    }
    if (frame.header.kind != framed_rpc::Kind::kReply) return Violation("the server sent no reply");
    if (expected.calls[frame.header.call]-- <= 0) {
      return Violation(absl::StrCat("a reply too many to call ", frame.header.call));
    }
    if (frame.header.code != 0 && frame.header.extra > frame.body.size()) {
      return Violation("the text of an error is longer than its frame");
    }
    ++(frame.header.code == 0 ? counts.answered : counts.refused);
    if (frame.header.call == kLastCall && expected.calls[kLastCall] == 0) break;
  }
  return expected.broken ? Violation("the server went on behind a broken frame") : absl::OkStatus();
}

}  // namespace

absl::Status CheckFramedRpc(const FramedRpcScript& script, FramedRpcCounts* counts) {
  FramedRpcCounts ignored;
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<Coordinator> coordinator, Coordinator::Start());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return absl::UnavailableError("no socket pair");
  }
  coordinator->server().Adopt(ends[0]);
  {
    Client client(ends[1], size_t{1} << (script.pieces % 17));
    COHORT_RETURN_IF_ERROR(Converse(client, script, counts == nullptr ? ignored : *counts));
  }
  if (!coordinator->AwaitNobody()) return Violation("calls of a client that is gone are left");
  if (coordinator->waiter_count() != 0) return Violation("a client that is gone waits");
  return absl::OkStatus();
}

}  // namespace cohort::coordinator::fuzz
