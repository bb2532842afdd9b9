#include "tests/fuzz/worker/attach_check.h"

#include <fcntl.h>
#include <poll.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/shm/local_socket.h"
#include "cohort/v1/attach.pb.h"
#include "tests/fuzz/worker/descriptors.h"
#include "worker/daemon/server/attach_server.h"
#include "worker/daemon/sessions/session_table.h"

namespace cohort::worker::fuzz {
namespace {

using shm::LocalSocket;

constexpr absl::Duration kTimeout = absl::Seconds(10);
// The server's own descriptors, sockets of clients that are leaving, and those that a run of the
// fuzzer has open.
constexpr int kMostFds = 200;
enum Form { kBare, kHello, kRegistration, kSendConnections, kForms };

Instant Soon() { return Clock::Steady().Now() + kTimeout; }

struct World {
  SessionTable sessions;
  std::unique_ptr<AttachServer> server;
};

World& TheWorld() {
  static World* const world = [] {
    auto* made = new World();
    made->server = *AttachServer::Start(made->sessions);
    return made;
  }();
  return *world;
}

class AttachingClient {
 public:
  AttachingClient(Input input, AttachCounts& counts) : input_(input), counts_(counts) {}

  absl::Status Run() {
    World& world = TheWorld();
    absl::StatusOr<std::shared_ptr<Session>> session = world.sessions.Open({"fuzz", 1, "here", ""}, Caller());
    if (!session.ok()) return absl::InternalError(session.status().message());
    session_ = *std::move(session);
    absl::Status status;
    {
      absl::StatusOr<LocalSocket> socket = LocalSocket::Connect(world.server->name(), Soon());
      if (!socket.ok()) return absl::InternalError(socket.status().message());
      while (status.ok() && open_ && !input_.empty()) status = Say(*socket);
    }
    if (status.ok() && greeted_) {
      pollfd ended = {session_->ended_fd(), POLLIN, 0};
      if (poll(&ended, 1, static_cast<int>(absl::ToInt64Milliseconds(kTimeout))) != 1) {
        status = absl::InternalError("the session outlives its client");
      }
    }
    world.sessions.End(session_, "the input is over");
    session_.reset();
    if (!status.ok()) return status;
    if (!world.sessions.AwaitLeft(Soon()) || OpenFds() > kMostFds) {
      return absl::InternalError("something stays behind");
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Say(const LocalSocket& socket) {
    const auto form = static_cast<Form>(input_.Byte() % kForms);
    const std::vector<UniqueFd> fds = ReadFds(input_);
    const absl::string_view body = input_.Bytes(input_.Byte());
    const std::string message = MessageOf(form, body);
    if (message.empty()) return absl::OkStatus();
    // The server may have closed; an answer that it sent before can still be read.
    if (!socket.Send(message, NumbersOf(fds), Soon()).ok()) open_ = false;
    const absl::StatusOr<LocalSocket::Message> answer = socket.Receive(Soon());
    if (!answer.ok()) {
      open_ = false;
      return absl::IsUnavailable(answer.status()) ? absl::OkStatus()
                                                  : absl::InternalError("no answer comes");
    }
    v1::AttachAnswer said;
    if (!said.ParseFromString(answer->bytes)) {
      return absl::InternalError("an answer that cannot be understood");
    }
    if (said.code() != 0) {
      ++counts_.refused;
      return said.text().empty() ? absl::InternalError("an error without a word")
                                 : absl::OkStatus();
    }
    ++counts_.accepted;
    greeted_ = true;
    return said.tensor() != 0 ? CheckTensor(said.tensor(), fds) : absl::OkStatus();
  }

  // The proper fields come first. The body follows them, and may set the same fields again.
  std::string MessageOf(Form form, absl::string_view body) const {
    v1::AttachHello hello;
    v1::AttachRequest request;
    switch (form) {
      case kHello: {
        hello.set_magic(v1::ATTACH_PROTOCOL_MAGIC);
        hello.set_version(v1::ATTACH_PROTOCOL_VERSION);
        hello.set_session(session_->id().ToBytes());
        return absl::StrCat(hello.SerializeAsString(), body);
      }
      case kRegistration:
        request.mutable_register_memory()->set_bytes(kHeapBytes);
        return absl::StrCat(request.SerializeAsString(), body);
      case kSendConnections:
        request.mutable_send_connections()->set_group(1);
        return absl::StrCat(request.SerializeAsString(), body);
      default:
        return std::string(body);
    }
  }

  absl::Status CheckTensor(uint64_t tensor, const std::vector<UniqueFd>& fds) {
    const absl::StatusOr<TensorMemory> memory = session_->tensors().Find(tensor);
    if (!memory.ok() || fds.size() != 1) return absl::InternalError("a tensor of nothing");
    if ((fcntl(fds[0].get(), F_GET_SEALS) & F_SEAL_SHRINK) == 0) {
      return absl::InternalError("memory that is not sealed against shrinking");
    }
    // All of the memory can be written.
    for (int64_t at = 0; at < memory->bytes; at += 512) memory->data[at] = 1;
    return absl::OkStatus();
  }

  Input input_;
  AttachCounts& counts_;
  std::shared_ptr<Session> session_;
  bool open_ = true;
  bool greeted_ = false;
};

}  // namespace

absl::Status CheckAttach(absl::string_view input, AttachCounts* counts) {
  AttachCounts own;
  return AttachingClient(Input(input), counts != nullptr ? *counts : own).Run();
}

std::vector<std::string> SampleAttaches() {
  const auto message = [](Form form, const std::vector<FdKind>& kinds,
                          absl::string_view body = "") {
    std::string bytes = {static_cast<char>(form), static_cast<char>(kinds.size())};
    for (const FdKind kind : kinds) bytes += static_cast<char>(kind);
    return absl::StrCat(bytes, std::string(1, static_cast<char>(body.size())), body);
  };
  const std::string hello = message(kHello, {});
  std::vector<std::string> samples = {
      hello,
      message(kBare, {}, "hello?"),
      message(kHello, {FdKind::kHeap, FdKind::kStream}),
      message(kHello, {}, std::string("\20\11", 2)),  // version 9
      message(kHello, {}, std::string("\32\1x", 3)),  // a session of one byte
      message(kRegistration, {FdKind::kHeap}),        // before the hello
      hello + message(kRegistration, {}),
      hello + message(kRegistration, {FdKind::kHeap, FdKind::kHeap}),
      hello + message(kSendConnections, {}),
      hello + hello,
      hello + message(kBare, {FdKind::kHeap}, "\377\377"),
      hello + message(kBare, {FdKind::kHeap}, std::string("\32\0", 2)),  // a reserved field
      // 2^64-1 bytes, and one.
      hello + message(kRegistration, {FdKind::kHeap},
                      "\12\13\10\377\377\377\377\377\377\377\377\377\1"),
      hello + message(kRegistration, {FdKind::kTruncated}, std::string("\12\2\10\1", 4)),
  };
  for (int kind = 0; kind < kFdKinds; ++kind) {
    samples.push_back(hello + message(kRegistration, {static_cast<FdKind>(kind)}));
  }
  return samples;
}

}  // namespace cohort::worker::fuzz
