#include "worker/daemon/server/attach_server.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/peer_user.h"
#include "base/shm/memory_file.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "base/threads/thread.h"
#include "worker/daemon/access/caller.h"

namespace cohort::worker {
namespace {

// A client sends its hello as soon as it connects, and takes its answers.
constexpr absl::Duration kTimeout = absl::Seconds(5);

// The client's connection, and the descriptor of its process.
constexpr int kClientDescriptors = 2;

// The pause before another accept while no descriptors are left.
constexpr int kPauseMs = 20;

// How often the silence of rejected clients is checked.
constexpr int kSweepMs = 1000;

// The least time between two lines of the log about rejected clients.
constexpr absl::Duration kBetweenLogs = absl::Seconds(10);

Instant Soon() { return Clock::Steady().Now() + kTimeout; }

// Waits until a descriptor is readable, for at most `timeout_ms` unless that is negative. Returns
// which descriptors are. Negative descriptors never are.
std::vector<bool> AwaitReadable(const std::vector<int>& descriptors, int timeout_ms = -1) {
  std::vector<pollfd> entries;
  for (const int fd : descriptors) entries.push_back({fd, POLLIN, 0});
  while (poll(entries.data(), entries.size(), timeout_ms) < 0 && errno == EINTR) {
  }
  std::vector<bool> readable;
  for (const pollfd& entry : entries) readable.push_back(entry.revents != 0);
  return readable;
}

void Reply(const shm::LocalSocket& client, const absl::Status& status, v1::AttachAnswer answer,
           absl::Span<const int> fds = {}) {
  answer.set_code(static_cast<int>(status.code()));
  answer.set_text(std::string(status.message().substr(0, 1024)));
  // Code 0 without a text would be a message of no bytes.
  std::string bytes = answer.SerializeAsString();
  if (bytes.empty()) bytes = std::string("\x08\x00", 2);
  client.Send(bytes, fds, Soon()).IgnoreError();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AttachServer>> AttachServer::Start(SessionTable& sessions,
                                                                  const shm::HostFolder& folder) {
  COHORT_ASSIGN_OR_RETURN(shm::LocalListener listener, shm::LocalListener::Create(folder));
  UniqueFd stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (stop.get() < 0) return absl::ResourceExhaustedError("no file descriptors are left");
  auto server = absl::WrapUnique(new AttachServer(sessions, std::move(listener), std::move(stop)));
  COHORT_ASSIGN_OR_RETURN(server->thread_,
                          StartThread("cohort-attach", [raw = server.get()] { raw->Run(); }));
  return server;
}

AttachServer::AttachServer(SessionTable& sessions, shm::LocalListener listener, UniqueFd stop)
    : sessions_(sessions),
      unnamed_(sessions.NewDescriptorShare()),
      listener_(std::move(listener)),
      stop_(std::move(stop)) {}

AttachServer::~AttachServer() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
  for (AttachedClient& attached : attached_) attached.thread.join();
}

void AttachServer::Run() {
  while (true) {
    std::vector<int> descriptors = {listener_.fd(), stop_.get()};
    for (const Rejected& rejected : rejected_) descriptors.push_back(rejected.socket.fd());
    if (AwaitReadable(descriptors, rejected_.empty() ? -1 : kSweepMs)[1]) return;
    DropRejected();
    DropDone();
    absl::StatusOr<shm::LocalSocket> client = listener_.Accept(absl::InfinitePast());
    if (absl::IsResourceExhausted(client.status())) {
      // The client stays in the queue, and the listener readable, until a descriptor is free.
      pollfd stop = {stop_.get(), POLLIN, 0};
      poll(&stop, 1, kPauseMs);
    }
    if (!client.ok()) continue;
    const absl::Status admitted = Admit(*client);
    if (!admitted.ok()) Reject(*std::move(client), admitted);
  }
}

absl::Status AttachServer::Admit(shm::LocalSocket& client) {
  if (const uid_t user = client.peer().uid; !IsThisUser(user)) {
    return absl::PermissionDeniedError(
        absl::StrCat("the worker is a process of ", NameOfUser(geteuid()), ", its client of ",
                     NameOfUser(user), ": memory is shared between processes of one user alone"));
  }
  if (attached_.size() >= kMaxClients) {
    return absl::ResourceExhaustedError(absl::StrCat(
        attached_.size(), " clients are attached to the worker; it takes at most ", kMaxClients));
  }
  COHORT_ASSIGN_OR_RETURN(
      HeldQuota descriptors,
      HeldQuota::Take(unnamed_, kClientDescriptors, "a client that attaches"));
  AttachedClient& attached = attached_.emplace_back();
  attached.descriptors = std::move(descriptors);
  attached.socket = std::move(client);
  absl::StatusOr<std::thread> thread = StartThread("cohort-attached", [this, &attached] {
    {
      // The socket and the descriptors end here; the entry itself stays until another client
      // connects.
      HeldQuota descriptors = std::move(attached.descriptors);
      const shm::LocalSocket socket = std::move(attached.socket);
      Serve(socket, std::move(descriptors));
    }
    attached.done = true;
  });
  if (!thread.ok()) {
    client = std::move(attached.socket);
    attached_.pop_back();
    return thread.status();
  }
  attached.thread = *std::move(thread);
  return absl::OkStatus();
}

void AttachServer::Reject(shm::LocalSocket client, const absl::Status& why) {
  // Limits the log: any process can cause rejections.
  if (const Instant now = Clock::Steady().Now(); now >= next_log_) {
    next_log_ = now + kBetweenLogs;
    const shm::LocalSocket::Peer peer = client.peer();
    Log(LogLevel::kWarning, "client not attached",
        {{"pid", static_cast<int64_t>(peer.pid)},
         {"user", static_cast<int64_t>(peer.uid)},
         {"why", why.message()}});
  }
  Reply(client, why, {});
  if (rejected_.size() >= kMaxRejected) rejected_.erase(rejected_.begin());
  rejected_.push_back({std::move(client), Soon()});
}

void AttachServer::DropRejected() {
  const Instant now = Clock::Steady().Now();
  const auto over = [now](const Rejected& rejected) {
    char ignored;
    // recv without room for descriptors: the kernel drops those of the hello.
    return recv(rejected.socket.fd(), &ignored, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN ||
           now > rejected.until;
  };
  rejected_.erase(std::remove_if(rejected_.begin(), rejected_.end(), over), rejected_.end());
}

void AttachServer::DropDone() {
  for (auto attached = attached_.begin(); attached != attached_.end();) {
    if (attached->done) {
      attached->thread.join();
      attached = attached_.erase(attached);
    } else {
      ++attached;
    }
  }
}

void AttachServer::Serve(const shm::LocalSocket& client, HeldQuota descriptors) {
  // Before the reply: a client that has it may end at once, and has no process to watch then.
  const pid_t pid = client.peer().pid;
  const UniqueFd process(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1);
  const bool has_ended = pid > 0 && process.get() < 0 && errno == ESRCH;
  const absl::StatusOr<std::shared_ptr<Session>> session = Greet(client, descriptors);
  if (!session.ok()) {
    Reply(client, session.status(), {});
    return;
  }
  if (has_ended || Follow(client, process.get(), **session)) {
    sessions_.End(*session, absl::StrCat("its client (", (*session)->Describe(), ") is gone"));
  }
}

absl::StatusOr<std::shared_ptr<Session>> AttachServer::Greet(const shm::LocalSocket& client,
                                                             HeldQuota& descriptors) {
  COHORT_ASSIGN_OR_RETURN(const shm::LocalSocket::Message message, client.Receive(Soon()));
  v1::AttachHello hello;
  if (!hello.ParseFromString(message.bytes) || hello.magic() != v1::ATTACH_PROTOCOL_MAGIC) {
    return absl::InvalidArgumentError("expected an AttachHello as the first message");
  }
  if (hello.version() != v1::ATTACH_PROTOCOL_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat("the client speaks version ", hello.version(), ", this worker ",
                     static_cast<int>(v1::ATTACH_PROTOCOL_VERSION)));
  }
  // The client has the user id of this process, and knows the session.
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<Session> session,
                          sessions_.Find(hello.session(), Caller()));
  COHORT_ASSIGN_OR_RETURN(
      HeldQuota counted,
      HeldQuota::Take(session->descriptors(), kClientDescriptors, "a client that attaches"));
  std::swap(descriptors, counted);
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<shm::Heap> heap, session->AttachHeap());
  v1::AttachAnswer answer;
  answer.set_heap_bytes(heap->segment().size());
  const int fd = heap->segment().fd();
  if (fd < 0) return shm::NotShared("the memory of a worker");
  Reply(client, absl::OkStatus(), std::move(answer), absl::MakeConstSpan(&fd, 1));
  return session;
}

bool AttachServer::Follow(const shm::LocalSocket& client, int process, Session& session) {
  while (true) {
    const std::vector<bool> readable =
        AwaitReadable({client.fd(), process, session.ended_fd(), stop_.get()});
    if (readable[2] || readable[3]) return false;
    if (readable[1]) return true;
    absl::StatusOr<shm::LocalSocket::Message> message = client.Receive(absl::InfinitePast());
    if (absl::IsDeadlineExceeded(message.status())) continue;
    if (!message.ok()) return true;
    AnswerRequest(client, session, *std::move(message));
  }
}

void AttachServer::AnswerRequest(const shm::LocalSocket& client, Session& session,
                                 shm::LocalSocket::Message message) {
  v1::AttachRequest request;
  v1::AttachAnswer answer;
  absl::Status status;
  if (!request.ParseFromString(message.bytes)) {
    status = absl::InvalidArgumentError("a malformed AttachRequest");
  } else if (request.has_register_memory()) {
    status = Register(session, request.register_memory(), message, &answer);
  } else if (request.has_send_connections()) {
    status = SendToClient(client, session, request.send_connections());
    if (status.ok()) return;  // SendToClient has answered
  } else {
    status =
        absl::UnimplementedError("this worker does not know this request: is the client newer?");
  }
  Reply(client, status, std::move(answer));
}

absl::Status AttachServer::SendToClient(const shm::LocalSocket& client, Session& session,
                                        const v1::SendConnections& request) {
  COHORT_ASSIGN_OR_RETURN(const std::shared_ptr<ClientRank> entry,
                          session.FindGroup(request.group()));
  TensorMemory record;
  if (request.flight_record() != 0) {
    COHORT_ASSIGN_OR_RETURN(record, session.tensors().Find(request.flight_record()));
  }
  return entry->SendToClient(client, std::move(record), Soon());
}

absl::Status AttachServer::Register(Session& session, const v1::RegisterMemory& request,
                                    shm::LocalSocket::Message& message, v1::AttachAnswer* answer) {
  if (message.fds.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory is registered with one descriptor; ", message.fds.size(), " came"));
  }
  struct Memory {
    HeldQuota descriptors;
    shm::Segment segment;  // destroyed first
  };
  auto owner = std::make_shared<Memory>();
  COHORT_ASSIGN_OR_RETURN(owner->descriptors,
                          HeldQuota::Take(session.descriptors(), 1, "registered memory"));
  COHORT_ASSIGN_OR_RETURN(owner->segment,
                          shm::Segment::Map(message.fds[0].release(), request.bytes()));
  TensorMemory memory;
  memory.data = owner->segment.data();
  memory.bytes = static_cast<int64_t>(owner->segment.size());
  memory.owner = std::move(owner);
  COHORT_ASSIGN_OR_RETURN(const uint64_t tensor, session.tensors().Add(std::move(memory)));
  answer->set_tensor(tensor);
  return absl::OkStatus();
}

}  // namespace cohort::worker
