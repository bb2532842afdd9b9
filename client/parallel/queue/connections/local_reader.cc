#include "client/parallel/queue/connections/local_reader.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/shm/host_folder.h"
#include "base/shm/local_socket.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
#include "client/parallel/queue/connections/connection_loop.h"
#include "client/parallel/queue/connections/handshake.h"
#include "client/parallel/queue/connections/peer_process.h"
#include "client/parallel/queue/ring/ring_source.h"
#include "client/parallel/queue/ring/wire_text.h"

namespace cohort::parallel {
namespace {

constexpr Instant kAtOnce = absl::InfinitePast();

// Reacts, on the loop's thread, to the writer's end and to this reader's own.
class Watch final : public EventLoop::Handler {
 public:
  Watch(EventLoop& events, shm::LocalSocket socket, RingSource& source)
      : events_(events), socket_(std::move(socket)), process_(socket_), source_(&source) {}

  bool Start(const std::shared_ptr<Watch>& self) {
    if (process_.fd() >= 0) events_.Add(process_.fd(), EPOLLIN, self);
    return events_.Add(socket_.fd(), EPOLLIN | EPOLLRDHUP, self);
  }
  void OnEvents(uint32_t) override {
    while (true) {
      const absl::StatusOr<shm::LocalSocket::Message> message = socket_.Receive(kAtOnce);
      if (message.ok()) {
        Handle(message->bytes);
        continue;
      }
      if (message.status().code() == absl::StatusCode::kDeadlineExceeded && !process_.HasEnded()) {
        return;
      }
      Unwatch();
      MutexLock lock(&mutex_);
      if (source_ != nullptr) source_->WriterGone("its process has ended, or hung up");
      return;
    }
  }
  void SayLeaves(absl::string_view reason) {
    {
      MutexLock lock(&mutex_);
      if (std::exchange(said_, true)) return;
    }
    v1::QueueLocalStep step;
    step.mutable_leaves()->set_reason(WireText(reason, kMostReasonBytes));
    socket_.Send(step.SerializeAsString(), {}, kAtOnce).IgnoreError();
  }
  void Stop() {
    Unwatch();
    {
      MutexLock lock(&mutex_);
      source_ = nullptr;
    }
    SayLeaves("it closed the queue");
  }

 private:
  // A writer only ever sends that it no longer waits for this reader.
  void Handle(const std::string& bytes) {
    v1::QueueLocalStep step;
    if (!step.ParseFromString(bytes) || !step.has_refused()) return;
    MutexLock lock(&mutex_);
    if (source_ != nullptr) source_->LetGo(Printable(step.refused().reason()));
  }
  void Unwatch() {
    if (process_.fd() >= 0) events_.Remove(process_.fd());
    events_.Remove(socket_.fd());
  }

  EventLoop& events_;
  const shm::LocalSocket socket_;
  const PeerProcess process_;
  Mutex mutex_;
  RingSource* source_ ABSL_GUARDED_BY(mutex_);
  bool said_ ABSL_GUARDED_BY(mutex_) = false;
};

// A ring and the connection to its writer.
class LocalReader final : public RingSource {
 public:
  LocalReader(std::shared_ptr<RingMemory> ring, std::shared_ptr<PageMemory> page,
              const std::string& writer, shm::LocalSocket socket)
      : RingSource(std::move(ring), std::move(page), writer),
        loop_(ConnectionLoop::Shared()),
        watch_(std::make_shared<Watch>(loop_->events(), std::move(socket), *this)) {}
  ~LocalReader() override { watch_->Stop(); }

  bool Start() { return watch_->Start(watch_); }

  void Leave(absl::string_view reason) override { watch_->SayLeaves(reason); }

 private:
  const std::shared_ptr<ConnectionLoop> loop_;
  const std::shared_ptr<Watch> watch_;
};

absl::Status Say(const shm::LocalSocket& socket, const v1::QueueLocalStep& step, Instant deadline) {
  return socket.Send(step.SerializeAsString(), {}, deadline);
}

// Receives the writer's next message, which has to be this step.
absl::StatusOr<shm::LocalSocket::Message> ReceiveStep(const shm::LocalSocket& socket,
                                                      v1::QueueLocalStep::StepCase expected,
                                                      v1::QueueLocalStep* step, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(shm::LocalSocket::Message message, socket.Receive(deadline));
  if (!step->ParseFromString(message.bytes)) {
    return absl::InvalidArgumentError("the writer sent a malformed QueueLocalStep");
  }
  if (step->step_case() == v1::QueueLocalStep::kRefused) {
    return absl::FailedPreconditionError(
        absl::StrCat("the writer rejected this reader: ", Printable(step->refused().reason())));
  }
  if (step->step_case() != expected) {
    return absl::InvalidArgumentError("the writer took a step out of sequence");
  }
  return message;
}

struct Memory {
  std::shared_ptr<RingMemory> ring;
  std::shared_ptr<PageMemory> page;
};

// Says hello, maps the memory, and waits until the writer admits this reader.
absl::StatusOr<Memory> Join(const shm::LocalSocket& socket, const v1::QueueHandle& handle,
                            const std::string& name, Instant deadline) {
  v1::QueueLocalStep step;
  *step.mutable_hello() = HelloTo(handle, name);
  COHORT_RETURN_IF_ERROR(Say(socket, step, deadline));
  COHORT_ASSIGN_OR_RETURN(shm::LocalSocket::Message welcome,
                          ReceiveStep(socket, v1::QueueLocalStep::kWelcome, &step, deadline));
  COHORT_RETURN_IF_ERROR(CheckWelcome(step.welcome()));
  if (welcome.fds.size() != 2) {
    return absl::InvalidArgumentError("the writer sent no memory");
  }
  Memory memory;
  COHORT_ASSIGN_OR_RETURN(
      memory.ring, RingMemory::Map(std::move(welcome.fds[0]), step.welcome().capacity_bytes()));
  COHORT_ASSIGN_OR_RETURN(memory.page, PageMemory::Map(std::move(welcome.fds[1])));
  step.set_mapped(true);
  COHORT_RETURN_IF_ERROR(Say(socket, step, deadline));
  // Waits until the writer admits this reader, after the value that it is writing.
  COHORT_RETURN_IF_ERROR(
      ReceiveStep(socket, v1::QueueLocalStep::kAdmitted, &step, deadline).status());
  return memory;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenLocalReader(const v1::QueueHandle& handle,
                                                            const std::string& name,
                                                            const WaitLimit& limit) {
  if (handle.local().empty()) return absl::UnavailableError("the writer has no local socket");
  COHORT_RETURN_IF_ERROR(limit.Cancelled());
  COHORT_ASSIGN_OR_RETURN(const shm::HostFolder folder, shm::HostFolder::Open());
  COHORT_ASSIGN_OR_RETURN(
      shm::LocalSocket socket,
      shm::LocalSocket::Connect(folder.AddressOf(handle.local(), handle.local_folder()),
                                limit.deadline()));
  // A child of the writer may hold the name of the socket; it does not answer.
  if (PeerProcess(socket).HasEnded()) return absl::UnavailableError("the writer's process is gone");
  // A cancellation hangs up, which ends the waits for the writer's messages.
  auto listener = limit.OnCancel(
      [fd = socket.fd()](const absl::Status& /*reason*/) { shutdown(fd, SHUT_RDWR); });
  absl::StatusOr<Memory> memory = Join(socket, handle, name, limit.deadline());
  listener.reset();
  COHORT_RETURN_IF_ERROR(limit.Cancelled());
  COHORT_RETURN_IF_ERROR(memory.status());
  auto reader = std::make_unique<LocalReader>(std::move(memory->ring), std::move(memory->page),
                                              handle.writer(), std::move(socket));
  if (!reader->Start()) return absl::ResourceExhaustedError("no room to watch the writer");
  return reader;
}

}  // namespace cohort::parallel
