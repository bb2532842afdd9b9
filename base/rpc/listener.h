// Accepts connections and tells by their first bytes who they are for: the lane, or gRPC.
#ifndef COHORT_BASE_RPC_LISTENER_H_
#define COHORT_BASE_RPC_LISTENER_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/lane/event_loop.h"
#include "base/rpc/listen_socket.h"

namespace cohort {

struct ListenerSinks {
  // Take the descriptor, which does not block and from which nothing was read.
  std::function<void(int fd)> lane;  // null: there is no lane
  std::function<void(int fd, int listener_fd)> grpc;
};

// Who connects and says nothing for ten seconds is sent away.
class Listener {
 public:
  Listener(std::vector<ListenSocket> sockets, ListenerSinks sinks);
  // Whether it accepts. Errors: RESOURCE_EXHAUSTED (threads, descriptors).
  const absl::Status& status() const { return status_; }
  // Accepts nothing more. No sink runs afterwards.
  ~Listener() = default;

 private:
  class Door;
  class Guest;

  void OnTick();

  const ListenerSinks sinks_;
  const std::vector<ListenSocket> sockets_;
  // Touched on the loop's thread alone.
  absl::flat_hash_set<std::shared_ptr<Guest>> guests_;
  absl::Status status_;
  std::vector<int> resting_;  // doors that wait for descriptors to become free
  // Last: its thread ends first.
  lane::EventLoop loop_;
};

}  // namespace cohort

#endif  // COHORT_BASE_RPC_LISTENER_H_
