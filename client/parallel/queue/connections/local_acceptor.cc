#include "client/parallel/queue/connections/local_acceptor.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/shm/host_folder.h"
#include "base/shm/local_socket.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "base/text/printable.h"
#include "base/threads/event_loop.h"
#include "base/threads/mutex.h"
#include "client/parallel/queue/connections/handshake.h"
#include "client/parallel/queue/connections/peer_process.h"
#include "client/parallel/queue/ring/wire_text.h"

namespace cohort::parallel {
namespace {

// Connections that have not said hello. If there are more, the oldest of them is closed.
constexpr size_t kMostUnidentified = 64;
// Never waits: a peer that does not read these few bytes is refused.
constexpr Instant kAtOnce = absl::InfinitePast();

void SendError(const shm::LocalSocket& socket, absl::string_view why) {
  v1::QueueLocalStep step;
  step.mutable_refused()->set_reason(WireText(why, kMostReasonBytes));
  // If the text does not reach the peer, the peer is gone.
  socket.Send(step.SerializeAsString(), {}, kAtOnce).IgnoreError();
}

class LocalSlot final : public ReaderSlot {
 public:
  LocalSlot(std::string name, std::shared_ptr<PageMemory> page,
            std::shared_ptr<shm::LocalSocket> socket)
      : ReaderSlot(std::move(name), "shared memory"),
        page_(std::move(page)),
        socket_(std::move(socket)) {}

  ReaderPage& page() override { return page_->page(); }
  void Admitted() override {
    v1::QueueLocalStep step;
    step.set_admitted(true);
    // If it cannot be told, the peer is gone, which another event shows.
    socket_->Send(step.SerializeAsString(), {}, kAtOnce).IgnoreError();
  }
  void Wake() override {
    page().reader_sleeps.store(0, std::memory_order_relaxed);
    WakeReader(page());
  }
  void Left(absl::string_view why) override { SendError(*socket_, why); }

 private:
  const std::shared_ptr<PageMemory> page_;
  const std::shared_ptr<shm::LocalSocket> socket_;
};

}  // namespace

// The state that the acceptor and its connections share. Connections come and go on the loop's
// thread.
class LocalAcceptor::State final : public EventLoop::Handler,
                                   public std::enable_shared_from_this<State> {
 public:
  State(ConnectionLoop& loop, shm::LocalListener listener, std::string folder,
        std::shared_ptr<RingWriter> writer, v1::QueueHandle handle)
      : loop_(loop),
        listener_(std::move(listener)),
        folder_(std::move(folder)),
        writer_(std::move(writer)),
        handle_(std::move(handle)) {}

  bool Open() { return loop_.events().Add(listener_.fd(), EPOLLIN, shared_from_this()); }
  // Accepts no more connections, and drops all.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnEvents(uint32_t) override;
  void Remove(Connection& connection) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string& name() const { return listener_.name(); }
  const std::string& folder() const { return folder_; }
  RingWriter& writer() { return *writer_; }
  const v1::QueueHandle& handle() const { return handle_; }

 private:
  void Receive(shm::LocalSocket socket) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops accepting for a moment.
  void Pause(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void ResumeLater();
  void Resume() ABSL_LOCKS_EXCLUDED(mutex_);

  ConnectionLoop& loop_;
  const shm::LocalListener listener_;
  const std::string folder_;  // its id
  const std::shared_ptr<RingWriter> writer_;
  const v1::QueueHandle handle_;
  bool complained_ = false;  // only for the loop's thread
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Connection>> connections_ ABSL_GUARDED_BY(mutex_);
};

// One connection.
class LocalAcceptor::Connection final : public EventLoop::Handler {
 public:
  Connection(std::shared_ptr<State> state, shm::LocalSocket socket)
      : state_(std::move(state)),
        socket_(std::make_shared<shm::LocalSocket>(std::move(socket))),
        process_(*socket_) {}

  // Returns false if the system refuses.
  bool Watch(EventLoop& events, const std::shared_ptr<Connection>& self) const {
    // If the process cannot be watched, its connection still tells its end, unless a child holds
    // it.
    if (process_.fd() >= 0) events.Add(process_.fd(), EPOLLIN, self);
    return events.Add(socket_->fd(), EPOLLIN | EPOLLRDHUP, self);
  }
  void Unwatch(EventLoop& events) const {
    if (process_.fd() >= 0) events.Remove(process_.fd());
    events.Remove(socket_->fd());
  }
  bool is_unidentified() const { return slot_ == nullptr; }
  void OnEvents(uint32_t) override;

 private:
  // Errors: why the connection is closed.
  absl::Status Follow(const v1::QueueLocalStep& step);
  absl::Status Greet(const v1::QueueHello& hello);
  void Go(const absl::Status& why);

  const std::shared_ptr<State> state_;
  const std::shared_ptr<shm::LocalSocket> socket_;
  const PeerProcess process_;
  std::shared_ptr<LocalSlot> slot_;
  bool admitted_ = false;
};

void LocalAcceptor::Connection::OnEvents(uint32_t) {
  while (true) {
    const absl::StatusOr<shm::LocalSocket::Message> message = socket_->Receive(kAtOnce);
    if (message.status().code() == absl::StatusCode::kDeadlineExceeded) {
      if (process_.HasEnded()) Go(absl::UnavailableError("its process is gone"));
      return;
    }
    if (!message.ok()) return Go(absl::UnavailableError("its process is gone, or its connection"));
    v1::QueueLocalStep step;
    if (!step.ParseFromString(message->bytes)) return Go(absl::InvalidArgumentError("no step"));
    const absl::Status status = Follow(step);
    if (!status.ok()) return Go(status);
  }
}

absl::Status LocalAcceptor::Connection::Follow(const v1::QueueLocalStep& step) {
  switch (step.step_case()) {
    case v1::QueueLocalStep::kHello:
      if (slot_ != nullptr) return absl::InvalidArgumentError("a second hello");
      return Greet(step.hello());
    case v1::QueueLocalStep::kMapped:
      if (slot_ == nullptr || admitted_) {
        return absl::InvalidArgumentError(
            "the reader reported its mapping of the memory before its hello, or twice");
      }
      admitted_ = true;
      state_->writer().Admit(slot_);
      return absl::OkStatus();
    case v1::QueueLocalStep::kLeaves:
      return absl::CancelledError(absl::StrCat("it left: ", Printable(step.leaves().reason())));
    default:
      return absl::InvalidArgumentError("a step that is not a reader's");
  }
}

absl::Status LocalAcceptor::Connection::Greet(const v1::QueueHello& hello) {
  COHORT_RETURN_IF_ERROR(CheckHello(hello, state_->handle()));
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<PageMemory> page, PageMemory::Create());
  v1::QueueLocalStep step;
  *step.mutable_welcome() = WelcomeOf(state_->handle(), 0);
  const int fds[] = {state_->writer().ring()->fd(), page->fd()};
  COHORT_RETURN_IF_ERROR(socket_->Send(step.SerializeAsString(), fds, kAtOnce));
  slot_ = std::make_shared<LocalSlot>(Printable(hello.name()), std::move(page), socket_);
  return absl::OkStatus();
}

void LocalAcceptor::Connection::Go(const absl::Status& why) {
  if (slot_ != nullptr && admitted_) {
    state_->writer().Leave(*slot_, why.message());
  } else {
    SendError(*socket_, why.message());
  }
  state_->Remove(*this);
}

void LocalAcceptor::State::OnEvents(uint32_t) {
  while (true) {
    absl::StatusOr<shm::LocalSocket> socket = listener_.Accept(kAtOnce);
    if (socket.status().code() == absl::StatusCode::kDeadlineExceeded) return;
    // The connection stays in the backlog, which epoll would report again at once.
    if (!socket.ok()) return Pause(socket.status());
    complained_ = false;
    Receive(*std::move(socket));
  }
}

void LocalAcceptor::State::Receive(shm::LocalSocket socket) {
  auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket));
  std::shared_ptr<Connection> sent_away;
  {
    MutexLock lock(&mutex_);
    // Under the lock, so that Close finds every watched connection.
    if (closed_ || !connection->Watch(loop_.events(), connection))
      return connection->Unwatch(loop_.events());
    const auto unidentified = [](const auto& other) { return other->is_unidentified(); };
    if (static_cast<size_t>(std::count_if(connections_.begin(), connections_.end(),
                                          unidentified)) >= kMostUnidentified) {
      sent_away = *std::find_if(connections_.begin(), connections_.end(), unidentified);
    }
    connections_.push_back(connection);
  }
  if (sent_away != nullptr) Remove(*sent_away);
}

void LocalAcceptor::State::Pause(const absl::Status& why) {
  if (!std::exchange(complained_, true)) {
    Log(LogLevel::kWarning, "new readers of a queue have to wait",
        {{"queue", handle_.name()}, {"cause", why.message()}});
  }
  loop_.events().Remove(listener_.fd());
  ResumeLater();
}

void LocalAcceptor::State::ResumeLater() {
  loop_.RunLater([state = weak_from_this()] {
    if (const std::shared_ptr<State> self = state.lock(); self != nullptr) self->Resume();
  });
}

void LocalAcceptor::State::Resume() {
  MutexLock lock(&mutex_);
  if (closed_) return;
  if (!loop_.events().Add(listener_.fd(), EPOLLIN, shared_from_this())) ResumeLater();
}

void LocalAcceptor::State::Remove(Connection& connection) {
  connection.Unwatch(loop_.events());
  std::shared_ptr<Connection> dropped;  // outside of the lock
  MutexLock lock(&mutex_);
  const auto it = std::find_if(connections_.begin(), connections_.end(),
                               [&](const auto& other) { return other.get() == &connection; });
  if (it == connections_.end()) return;
  dropped = std::move(*it);
  connections_.erase(it);
}

void LocalAcceptor::State::Close() {
  std::vector<std::shared_ptr<Connection>> connections;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    connections.swap(connections_);
  }
  loop_.events().Remove(listener_.fd());
  for (const std::shared_ptr<Connection>& connection : connections)
    connection->Unwatch(loop_.events());
}

absl::StatusOr<std::unique_ptr<LocalAcceptor>> LocalAcceptor::Open(
    std::shared_ptr<RingWriter> writer, const v1::QueueHandle& handle) {
  COHORT_ASSIGN_OR_RETURN(const shm::HostFolder folder, shm::HostFolder::Open());
  COHORT_ASSIGN_OR_RETURN(shm::LocalListener listener, shm::LocalListener::Create(folder));
  std::shared_ptr<ConnectionLoop> loop = ConnectionLoop::Shared();
  auto state =
      std::make_shared<State>(*loop, std::move(listener), folder.id(), std::move(writer), handle);
  if (!state->Open()) return absl::ResourceExhaustedError("no room to watch a local socket");
  return absl::WrapUnique(new LocalAcceptor(std::move(loop), std::move(state)));
}

LocalAcceptor::~LocalAcceptor() {
  state_->Close();
  // The loop's thread may still be busy with a connection. That is safe: the state and its
  // connections own all objects that they use.
}

const std::string& LocalAcceptor::name() const { return state_->name(); }
const std::string& LocalAcceptor::folder() const { return state_->folder(); }

}  // namespace cohort::parallel
