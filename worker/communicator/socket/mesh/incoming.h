// The connections that come while a mesh is built: each shows by its first bytes whether it is a
// rank's.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_INCOMING_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_INCOMING_H_

#include <poll.h>
#include <sys/socket.h>

#include <cstddef>
#include <functional>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "base/unique_fd.h"
#include "worker/communicator/socket/mesh/handshake.h"
#include "worker/communicator/socket/mesh/rank_listener.h"

namespace cohort::worker {

// Strangers may connect as often as they like, send nothing, or repeat a hello that they have
// overheard: a rank's hello is read before its connection can be dropped.
class Incoming {
 public:
  // The place of a rank's connection. Both may run inside Advance.
  struct Places {
    std::function<bool(const Hello&)> is_taken;
    std::function<void(const Hello&, UniqueFd)> take;
  };

  Incoming(const Listener& listener, const Membership& self, Places places)
      : listener_(listener), self_(self), places_(std::move(places)) {}

  void AppendTo(std::vector<pollfd>* polled) const;
  // Handles the events of what AppendTo has appended at `polled`.
  // Errors: RESOURCE_EXHAUSTED (file descriptors).
  absl::Status Advance(const pollfd* polled);
  // " (3 others were rejected; the last: ...)", or nothing.
  std::string Rejections() const;

 private:
  // A connection whose rank is not known yet.
  struct Pending {
    UniqueFd fd;
    Hello hello;
    size_t got = 0;
    bool welcomed = false;  // it owes the proof
    bool closed = false;  // and not erased yet
    Welcome welcome;
    Proof proof;
    size_t proof_got = 0;
  };

  // Return whether the connection has been accepted or rejected, or has gone.
  bool Advance(Pending& pending);
  bool ReadHello(Pending& pending);
  bool ReadProof(Pending& pending);
  void Reject(Answer answer);
  absl::Status Accept();
  // Another connection has the same hello as `pending`: too many of them are replays.
  void DropOldestLike(const Pending& pending);
  bool DropSilent();

  const Listener& listener_;
  const Membership& self_;
  const Places places_;
  std::list<Pending> pending_;  // oldest first
  size_t unknown_ = 0;          // of them, those that have not said who they are
  int rejected_ = 0;
  std::string last_rejection_;
};

// The first bytes of a connection always find room.
template <typename Message>
bool SendWhole(int fd, const Message& message) {
  return send(fd, &message, sizeof(message), MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof(message));
}

bool IsOutOfDescriptors(int error);
absl::Status OutOfDescriptors(absl::string_view operation, int error);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_INCOMING_H_
