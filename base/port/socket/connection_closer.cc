#include "base/port/socket/connection_closer.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace cohort {

uint64_t SocketCookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  return getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) == 0 ? cookie : 0;
}

ConnectionCloser::ConnectionCloser()
    : idle_(eventfd(0, EFD_CLOEXEC)),  // needs no file, such as /dev/null, which an image may lack
      spare_(fcntl(idle_.get(), F_DUPFD_CLOEXEC, 0)) {}

absl::Status ConnectionCloser::status() const {
  if (spare_.get() >= 0) return absl::OkStatus();
  return absl::ResourceExhaustedError("no descriptor to close connections with");
}

void ConnectionCloser::Close(int fd, uint64_t cookie) {
  // The spare number takes the place of a new one.
  if (spare_.get() < 0 || dup3(fd, spare_.get(), O_CLOEXEC) < 0) return;
  if (SocketCookie(spare_.get()) == cookie) shutdown(spare_.get(), SHUT_RDWR);
  dup3(idle_.get(), spare_.get(), O_CLOEXEC);
}

}  // namespace cohort
