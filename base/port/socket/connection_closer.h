// Ends a connection that another thread owns.
#ifndef COHORT_BASE_PORT_SOCKET_CONNECTION_CLOSER_H_
#define COHORT_BASE_PORT_SOCKET_CONNECTION_CLOSER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "base/unique_fd.h"

namespace cohort {

// Returns a number that identifies the socket as long as the machine runs. (The descriptor's number
// is used again.) 0: `fd` is not a socket.
uint64_t SocketCookie(int fd);

// It works where the process has no free descriptor, which is when a listener needs it: it holds
// two. Thread-compatible.
class ConnectionCloser {
 public:
  ConnectionCloser();

  // RESOURCE_EXHAUSTED: the process had no two descriptors. Close then does nothing.
  absl::Status status() const;
  // Shuts the socket down, unless it has been closed: the owner may close it at any time, and its
  // number may be used again. `cookie`: SocketCookie.
  void Close(int fd, uint64_t cookie);

 private:
  const UniqueFd idle_;
  const UniqueFd spare_;  // stands for the socket meanwhile, else for the same file as `idle_`
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_SOCKET_CONNECTION_CLOSER_H_
