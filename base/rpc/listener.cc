#include "base/rpc/listener.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <utility>

#include "base/clock.h"
#include "base/lane/frame.h"
#include "base/logging.h"

namespace cohort {
namespace {

constexpr absl::Duration kTick = absl::Seconds(1);
constexpr absl::Duration kSilence = absl::Seconds(10);

}  // namespace

// A connection that has not said yet what it is.
class Listener::Guest final : public lane::EventLoop::Handler,
                              public std::enable_shared_from_this<Guest> {
 public:
  Guest(Listener& listener, int fd, int listener_fd)
      : listener_(listener), fd_(fd), listener_fd_(listener_fd) {}
  ~Guest() override {
    if (fd_ >= 0) close(fd_);
  }

  void OnEvents(uint32_t) override {
    if (fd_ < 0) return;
    char first[lane::kPreface.size()];
    const ssize_t count = recv(fd_, first, sizeof(first), MSG_PEEK | MSG_DONTWAIT);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
    const absl::string_view seen(first, count > 0 ? static_cast<size_t>(count) : 0);
    if (seen.empty()) return Leave();
    const bool ours =
        listener_.sinks_.lane != nullptr && seen == lane::kPreface.substr(0, seen.size());
    if (ours && seen.size() < lane::kPreface.size()) return;  // told when there is more
    const int fd = std::exchange(fd_, -1);
    listener_.loop_.Remove(fd);
    if (ours) {
      listener_.sinks_.lane(fd);
    } else {
      listener_.sinks_.grpc(fd, listener_fd_);
    }
    listener_.guests_.erase(shared_from_this());
  }

  bool silent(Instant now) const { return now - since_ > kSilence; }
  void Leave() {
    listener_.loop_.Remove(fd_);
    listener_.guests_.erase(shared_from_this());
  }

 private:
  Listener& listener_;
  int fd_;
  const int listener_fd_;
  const Instant since_ = Clock::Steady().Now();
};

class Listener::Door final : public lane::EventLoop::Handler {
 public:
  Door(Listener& listener, int fd) : listener_(listener), fd_(fd) {}

  void OnEvents(uint32_t) override {
    while (true) {
      const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) {
        const int error = errno;
        if (error == ECONNABORTED || error == EINTR) continue;
        if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) Rest();
        return;
      }
      auto guest = std::make_shared<Guest>(listener_, fd, fd_);
      listener_.guests_.insert(guest);
      listener_.loop_.SetTicking(true);
      // Edge-triggered: half a preface must not wake us again and again.
      if (!listener_.loop_.Add(fd, EPOLLIN | EPOLLRDHUP | EPOLLET, guest)) {
        listener_.guests_.erase(guest);
      }
    }
  }

 private:
  // Those who knock meanwhile wait in the kernel's queue.
  void Rest() {
    Log(LogLevel::kWarning, "too many open files: accepting no connections for a moment", {});
    listener_.loop_.Modify(fd_, 0);
    listener_.resting_.push_back(fd_);
    listener_.loop_.SetTicking(true);
  }

  Listener& listener_;
  const int fd_;
};

Listener::Listener(std::vector<ListenSocket> sockets, ListenerSinks sinks)
    : sinks_(std::move(sinks)),
      sockets_(std::move(sockets)),
      loop_("listener", kTick, [this] { OnTick(); }) {
  status_ = loop_.Start();
  for (const ListenSocket& socket : sockets_) {
    if (!status_.ok()) return;
    if (!loop_.Add(socket.fd(), EPOLLIN, std::make_shared<Door>(*this, socket.fd()))) {
      status_ = absl::ResourceExhaustedError("the system does not watch a listening socket");
    }
  }
}

void Listener::OnTick() {
  for (const int fd : std::exchange(resting_, {})) loop_.Modify(fd, EPOLLIN);
  const Instant now = Clock::Steady().Now();
  std::vector<std::shared_ptr<Guest>> silent;
  for (const std::shared_ptr<Guest>& guest : guests_) {
    if (guest->silent(now)) silent.push_back(guest);
  }
  for (const std::shared_ptr<Guest>& guest : silent) guest->Leave();
  loop_.SetTicking(!guests_.empty() || !resting_.empty());
}

}  // namespace cohort
