#include "client/parallel/queue/local_door.h"

#include <sys/epoll.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "base/lane/event_loop.h"
#include "base/logging.h"
#include "base/mutex.h"
#include "base/printable.h"
#include "base/shm/local_socket.h"
#include "base/status_macros.h"
#include "client/parallel/queue/peer_process.h"
#include "client/parallel/queue/terms.h"
#include "client/parallel/queue/wire_text.h"

namespace cohort::parallel {
namespace {

// Connections that have not said hello. If there are more, the oldest of them is closed.
constexpr size_t kMostStrangers = 64;
// Never waits: a peer that does not read these few bytes is refused.
constexpr Instant kAtOnce = absl::InfinitePast();

void SendRefusal(const shm::LocalSocket& socket, absl::string_view why) {
  v1::QueueLocalStep step;
  step.mutable_refused()->set_reason(WireText(why, kMostReasonBytes));
  // If the text does not reach the peer, the peer is gone.
  socket.Send(step.SerializeAsString(), {}, kAtOnce).IgnoreError();
}

class LocalSeat final : public ReaderSeat {
 public:
  LocalSeat(std::string name, std::shared_ptr<PageMemory> page,
            std::shared_ptr<shm::LocalSocket> socket)
      : ReaderSeat(std::move(name), "shared memory"),
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
  void Left(absl::string_view why) override { SendRefusal(*socket_, why); }

 private:
  const std::shared_ptr<PageMemory> page_;
  const std::shared_ptr<shm::LocalSocket> socket_;
};

}  // namespace

// The state that the door and its guests share. Guests come and go on the loop's thread.
class LocalDoor::Hall final : public lane::EventLoop::Handler,
                              public std::enable_shared_from_this<Hall> {
 public:
  Hall(QueueLoop& loop, shm::LocalListener listener, std::shared_ptr<RingWriter> writer,
       v1::QueueHandle handle)
      : loop_(loop),
        listener_(std::move(listener)),
        writer_(std::move(writer)),
        handle_(std::move(handle)) {}

  bool Open() { return loop_.events().Add(listener_.fd(), EPOLLIN, shared_from_this()); }
  // Admits no more guests, and drops all.
  void Close() ABSL_LOCKS_EXCLUDED(mutex_);
  void OnEvents(uint32_t) override;
  void Remove(Guest& guest) ABSL_LOCKS_EXCLUDED(mutex_);

  const std::string& name() const { return listener_.name(); }
  RingWriter& writer() { return *writer_; }
  const v1::QueueHandle& handle() const { return handle_; }

 private:
  void Receive(shm::LocalSocket socket) ABSL_LOCKS_EXCLUDED(mutex_);
  // Stops accepting for a moment.
  void Pause(const absl::Status& why) ABSL_LOCKS_EXCLUDED(mutex_);
  void ResumeLater();
  void Resume() ABSL_LOCKS_EXCLUDED(mutex_);

  QueueLoop& loop_;
  const shm::LocalListener listener_;
  const std::shared_ptr<RingWriter> writer_;
  const v1::QueueHandle handle_;
  bool complained_ = false;  // only for the loop's thread
  Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::shared_ptr<Guest>> guests_ ABSL_GUARDED_BY(mutex_);
};

// One connection.
class LocalDoor::Guest final : public lane::EventLoop::Handler {
 public:
  Guest(std::shared_ptr<Hall> hall, shm::LocalSocket socket)
      : hall_(std::move(hall)),
        socket_(std::make_shared<shm::LocalSocket>(std::move(socket))),
        process_(*socket_) {}

  // Returns false if the system refuses.
  bool Watch(lane::EventLoop& events, const std::shared_ptr<Guest>& self) const {
    // If the process cannot be watched, its connection still tells its end, unless a child holds
    // it.
    if (process_.fd() >= 0) events.Add(process_.fd(), EPOLLIN, self);
    return events.Add(socket_->fd(), EPOLLIN | EPOLLRDHUP, self);
  }
  void Unwatch(lane::EventLoop& events) const {
    if (process_.fd() >= 0) events.Remove(process_.fd());
    events.Remove(socket_->fd());
  }
  bool is_stranger() const { return seat_ == nullptr; }
  void OnEvents(uint32_t) override;

 private:
  // Errors: why the guest goes.
  absl::Status Follow(const v1::QueueLocalStep& step);
  absl::Status Greet(const v1::QueueHello& hello);
  void Go(const absl::Status& why);

  const std::shared_ptr<Hall> hall_;
  const std::shared_ptr<shm::LocalSocket> socket_;
  const PeerProcess process_;
  std::shared_ptr<LocalSeat> seat_;
  bool admitted_ = false;
};

void LocalDoor::Guest::OnEvents(uint32_t) {
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

absl::Status LocalDoor::Guest::Follow(const v1::QueueLocalStep& step) {
  switch (step.step_case()) {
    case v1::QueueLocalStep::kHello:
      if (seat_ != nullptr) return absl::InvalidArgumentError("a second hello");
      return Greet(step.hello());
    case v1::QueueLocalStep::kMapped:
      if (seat_ == nullptr || admitted_) return absl::InvalidArgumentError("mapped what?");
      admitted_ = true;
      hall_->writer().Admit(seat_);
      return absl::OkStatus();
    case v1::QueueLocalStep::kLeaves:
      return absl::CancelledError(absl::StrCat("it left: ", Printable(step.leaves().reason())));
    default:
      return absl::InvalidArgumentError("a step that is not a reader's");
  }
}

absl::Status LocalDoor::Guest::Greet(const v1::QueueHello& hello) {
  COHORT_RETURN_IF_ERROR(CheckHello(hello, hall_->handle()));
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<PageMemory> page, PageMemory::Create());
  v1::QueueLocalStep step;
  *step.mutable_welcome() = WelcomeOf(hall_->handle(), 0);
  const int fds[] = {hall_->writer().ring()->fd(), page->fd()};
  COHORT_RETURN_IF_ERROR(socket_->Send(step.SerializeAsString(), fds, kAtOnce));
  seat_ = std::make_shared<LocalSeat>(Printable(hello.name()), std::move(page), socket_);
  return absl::OkStatus();
}

void LocalDoor::Guest::Go(const absl::Status& why) {
  if (seat_ != nullptr && admitted_) {
    hall_->writer().Leave(*seat_, why.message());
  } else {
    SendRefusal(*socket_, why.message());
  }
  hall_->Remove(*this);
}

void LocalDoor::Hall::OnEvents(uint32_t) {
  while (true) {
    absl::StatusOr<shm::LocalSocket> socket = listener_.Accept(kAtOnce);
    if (socket.status().code() == absl::StatusCode::kDeadlineExceeded) return;
    // The connection stays in the backlog, which epoll would report again at once.
    if (!socket.ok()) return Pause(socket.status());
    complained_ = false;
    Receive(*std::move(socket));
  }
}

void LocalDoor::Hall::Receive(shm::LocalSocket socket) {
  auto guest = std::make_shared<Guest>(shared_from_this(), std::move(socket));
  std::shared_ptr<Guest> sent_away;
  {
    MutexLock lock(&mutex_);
    // Under the lock, so that Close finds every watched guest.
    if (closed_ || !guest->Watch(loop_.events(), guest)) return guest->Unwatch(loop_.events());
    const auto stranger = [](const auto& other) { return other->is_stranger(); };
    if (static_cast<size_t>(std::count_if(guests_.begin(), guests_.end(), stranger)) >=
        kMostStrangers) {
      sent_away = *std::find_if(guests_.begin(), guests_.end(), stranger);
    }
    guests_.push_back(guest);
  }
  if (sent_away != nullptr) Remove(*sent_away);
}

void LocalDoor::Hall::Pause(const absl::Status& why) {
  if (!std::exchange(complained_, true)) {
    Log(LogLevel::kWarning, "readers of a queue have to wait to be let in",
        {{"queue", handle_.name()}, {"cause", why.message()}});
  }
  loop_.events().Remove(listener_.fd());
  ResumeLater();
}

void LocalDoor::Hall::ResumeLater() {
  loop_.RunLater([hall = weak_from_this()] {
    if (const std::shared_ptr<Hall> self = hall.lock(); self != nullptr) self->Resume();
  });
}

void LocalDoor::Hall::Resume() {
  MutexLock lock(&mutex_);
  if (closed_) return;
  if (!loop_.events().Add(listener_.fd(), EPOLLIN, shared_from_this())) ResumeLater();
}

void LocalDoor::Hall::Remove(Guest& guest) {
  guest.Unwatch(loop_.events());
  std::shared_ptr<Guest> dropped;  // outside of the lock
  MutexLock lock(&mutex_);
  const auto it = std::find_if(guests_.begin(), guests_.end(),
                               [&](const auto& other) { return other.get() == &guest; });
  if (it == guests_.end()) return;
  dropped = std::move(*it);
  guests_.erase(it);
}

void LocalDoor::Hall::Close() {
  std::vector<std::shared_ptr<Guest>> guests;
  {
    MutexLock lock(&mutex_);
    closed_ = true;
    guests.swap(guests_);
  }
  loop_.events().Remove(listener_.fd());
  for (const std::shared_ptr<Guest>& guest : guests) guest->Unwatch(loop_.events());
}

absl::StatusOr<std::unique_ptr<LocalDoor>> LocalDoor::Open(std::shared_ptr<RingWriter> writer,
                                                           const v1::QueueHandle& handle) {
  COHORT_ASSIGN_OR_RETURN(shm::LocalListener listener, shm::LocalListener::Create());
  std::shared_ptr<QueueLoop> loop = QueueLoop::Shared();
  auto hall = std::make_shared<Hall>(*loop, std::move(listener), std::move(writer), handle);
  if (!hall->Open()) return absl::ResourceExhaustedError("no room to watch a local socket");
  return absl::WrapUnique(new LocalDoor(std::move(loop), std::move(hall)));
}

LocalDoor::~LocalDoor() {
  hall_->Close();
  // The loop's thread may still be busy with a guest. That is safe: the hall and its guests own all
  // objects that they use.
}

const std::string& LocalDoor::name() const { return hall_->name(); }

}  // namespace cohort::parallel
