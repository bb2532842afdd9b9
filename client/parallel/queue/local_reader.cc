#include "client/parallel/queue/local_reader.h"

#include <sys/epoll.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/lane/event_loop.h"
#include "base/mutex.h"
#include "base/shm/local_socket.h"
#include "base/status_macros.h"
#include "client/parallel/queue/queue_loop.h"
#include "client/parallel/queue/ring_source.h"
#include "client/parallel/queue/terms.h"

namespace cohort::parallel {
namespace {

constexpr Instant kAtOnce = absl::InfinitePast();

// Waits for the writer's end on the loop's thread.
class Watch final : public lane::EventLoop::Handler {
 public:
  Watch(lane::EventLoop& loop, shm::LocalSocket socket, RingSource& source)
      : loop_(loop), socket_(std::move(socket)), source_(&source) {}

  bool Start(const std::shared_ptr<Watch>& self) {
    return loop_.Add(socket_.fd(), EPOLLIN | EPOLLRDHUP, self);
  }
  void OnEvents(uint32_t) override {
    // The writer has nothing to say any more.
    const absl::Status status = socket_.Receive(kAtOnce).status();
    if (status.code() == absl::StatusCode::kDeadlineExceeded || status.ok()) return;
    loop_.Remove(socket_.fd());
    MutexLock lock(&mutex_);
    if (source_ != nullptr) source_->WriterGone("its process has ended, or hung up");
  }
  void Stop() {
    loop_.Remove(socket_.fd());
    {
      MutexLock lock(&mutex_);
      source_ = nullptr;
    }
    v1::QueueLocalStep step;
    step.mutable_leaves()->set_reason("it closed the queue");
    socket_.Send(step.SerializeAsString(), {}, kAtOnce).IgnoreError();
  }

 private:
  lane::EventLoop& loop_;
  const shm::LocalSocket socket_;
  Mutex mutex_;
  RingSource* source_ ABSL_GUARDED_BY(mutex_);
};

// A ring and the connection to its writer.
class LocalReader final : public ByteSource {
 public:
  LocalReader(std::shared_ptr<RingMemory> ring, std::shared_ptr<PageMemory> page,
              const std::string& writer, shm::LocalSocket socket)
      : ring_(std::move(ring), std::move(page), writer),
        loop_(QueueLoop()),
        watch_(std::make_shared<Watch>(*loop_, std::move(socket), ring_)) {}
  ~LocalReader() override { watch_->Stop(); }

  bool Start() { return watch_->Start(watch_); }

  absl::string_view Peek() override { return ring_.Peek(); }
  void Release(uint64_t bytes, uint64_t values) override { ring_.Release(bytes, values); }
  absl::Status Await(uint64_t bytes, const Patience& patience) override {
    return ring_.Await(bytes, patience);
  }
  void Stop(const absl::Status& reason) override { ring_.Stop(reason); }
  std::string path() const override { return ring_.path(); }

 private:
  RingSource ring_;
  const std::shared_ptr<lane::EventLoop> loop_;
  const std::shared_ptr<Watch> watch_;
};

absl::Status Say(const shm::LocalSocket& socket, const v1::QueueLocalStep& step, Instant deadline) {
  return socket.Send(step.SerializeAsString(), {}, deadline);
}

// The writer's next step, which has to be this one.
absl::StatusOr<shm::LocalSocket::Message> Hear(const shm::LocalSocket& socket,
                                               v1::QueueLocalStep::StepCase expected,
                                               v1::QueueLocalStep* step, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(shm::LocalSocket::Message message, socket.Receive(deadline));
  if (!step->ParseFromString(message.bytes)) {
    return absl::InvalidArgumentError("the writer said what makes no sense");
  }
  if (step->step_case() == v1::QueueLocalStep::kRefused) {
    return absl::FailedPreconditionError(
        absl::StrCat("the writer let it not in: ", step->refused().reason()));
  }
  if (step->step_case() != expected) {
    return absl::InvalidArgumentError("the writer took another step than its turn");
  }
  return message;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ByteSource>> OpenLocalReader(const v1::QueueHandle& handle,
                                                            const std::string& name,
                                                            Instant deadline) {
  if (handle.local().empty()) return absl::UnavailableError("the writer has no local socket");
  COHORT_ASSIGN_OR_RETURN(shm::LocalSocket socket,
                          shm::LocalSocket::Connect(handle.local(), deadline));
  v1::QueueLocalStep step;
  *step.mutable_hello() = HelloTo(handle, name);
  COHORT_RETURN_IF_ERROR(Say(socket, step, deadline));
  COHORT_ASSIGN_OR_RETURN(shm::LocalSocket::Message welcome,
                          Hear(socket, v1::QueueLocalStep::kWelcome, &step, deadline));
  COHORT_RETURN_IF_ERROR(CheckWelcome(step.welcome()));
  if (welcome.fds.size() != 2) {
    return absl::InvalidArgumentError("the writer handed over no memory");
  }
  COHORT_ASSIGN_OR_RETURN(
      std::shared_ptr<RingMemory> ring,
      RingMemory::Map(std::move(welcome.fds[0]), step.welcome().capacity_bytes()));
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<PageMemory> page,
                          PageMemory::Map(std::move(welcome.fds[1])));
  step.set_mapped(true);
  COHORT_RETURN_IF_ERROR(Say(socket, step, deadline));
  // The writer's, with what it is writing.
  COHORT_RETURN_IF_ERROR(Hear(socket, v1::QueueLocalStep::kAdmitted, &step, deadline).status());
  auto reader = std::make_unique<LocalReader>(std::move(ring), std::move(page), handle.writer(),
                                              std::move(socket));
  if (!reader->Start()) return absl::ResourceExhaustedError("no room to watch the writer");
  return reader;
}

}  // namespace cohort::parallel
