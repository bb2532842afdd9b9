#include "tests/amplification/peer_socket.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>

#include "base/clock.h"

namespace cohort::amplification {

PeerSocket::PeerSocket(int port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(fd_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    std::abort();
  }
}

bool PeerSocket::Send(absl::string_view bytes, absl::Duration timeout) {
  while (!closed_ && !bytes.empty()) {
    pollfd waited{fd_.get(), POLLIN | POLLOUT, 0};
    if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(timeout))) <= 0) return false;
    if ((waited.revents & (POLLIN | POLLHUP | POLLERR)) != 0) Drain();
    if (closed_ || (waited.revents & POLLOUT) == 0) continue;
    const ssize_t count = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count > 0) {
      sent_bytes_ += count;
      bytes.remove_prefix(static_cast<size_t>(count));
    } else if (errno != EAGAIN && errno != EINTR) {
      closed_ = true;
    }
  }
  return !closed_;
}

bool PeerSocket::Await(absl::FunctionRef<bool()> done, absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  while (!done()) {
    const absl::Duration left = deadline - Clock::Steady().Now();
    if (closed_ || left <= absl::ZeroDuration()) return false;
    pollfd waited{fd_.get(), POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1) > 0) Drain();
  }
  return true;
}

void PeerSocket::Drain() {
  char buffer[size_t{64} << 10];
  while (!closed_) {
    const ssize_t count = recv(fd_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count <= 0) {
      closed_ = true;
      return;
    }
    if (on_input) on_input(absl::string_view(buffer, static_cast<size_t>(count)));
  }
}

}  // namespace cohort::amplification
