// Accepts connections and tells by their first bytes who they are for: the lane, or gRPC. Bounds
// how many there are, and what each may send in HTTP/2 (http2_guard.h).
#ifndef COHORT_BASE_RPC_LISTENER_H_
#define COHORT_BASE_RPC_LISTENER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/lane/event_loop.h"
#include "base/mutex.h"
#include "base/rpc/guarded_socket.h"
#include "base/rpc/http2_guard.h"
#include "base/rpc/incoming_bytes.h"
#include "base/rpc/listen_socket.h"
#include "base/rpc/resume_timer.h"

namespace cohort {

// What a lane knows of its client's address.
struct LanePeer {
  // The address has broken a limit a short while ago. Shared by all its connections.
  std::shared_ptr<const std::atomic<bool>> suspect = std::make_shared<std::atomic<bool>>(false);
  // To be called once, when the lane closes a connection for what it sent. Thread-safe.
  std::function<void(const absl::Status&)> on_offence = [](const absl::Status&) {};
  // Of all connections of the address; null: not counted.
  std::shared_ptr<IncomingBytes> incoming;
};

struct ListenerSinks {
  // Take the descriptor, which does not block and from which nothing was read.
  std::function<void(int fd, LanePeer peer)> lane;  // null: there is no lane
  std::function<void(int fd, int listener_fd)> grpc;
};

struct ListenerOptions {
  // Connections at once. 0: as many as descriptors may be open, less those that are open when the
  // listener starts and a reserve for files and metrics.
  int max_connections = 0;
  // Connections of one peer: one address, or one user of a Unix socket. 0: three quarters of
  // max_connections.
  int max_connections_per_peer = 0;
  // A connection that has not said by then what it is gets closed.
  absl::Duration preface_timeout = absl::Seconds(5);
  Http2Limits http2;
  // Requests of which a part has come, over all connections; those of one address may hold three
  // quarters. 0: an eighth of the memory that the process may use.
  int64_t max_incoming_bytes = 0;
  // Told of every change of their sum, on the thread that reads.
  std::function<void(int64_t more)> on_incoming_bytes;
};

// At a limit of connections, the oldest one without a complete request makes room for a new one;
// where all have had one, the new one is refused. A connection that goes over a limit of HTTP/2, or
// has the sum of incoming bytes go over its limit, is closed. The log has a line a minute at most for each peer.
class Listener {
 public:
  Listener(std::vector<ListenSocket> sockets, ListenerSinks sinks, ListenerOptions options = {});
  // Accepts nothing more. No sink runs afterwards; what gRPC was given stays guarded, but no longer
  // waits between two reads.
  ~Listener();

  // Whether it accepts. Errors: RESOURCE_EXHAUSTED (threads, descriptors).
  const absl::Status& status() const { return status_; }
  int max_connections() const { return max_connections_; }

 private:
  class Door;
  class Guest;
  struct Peer;
  struct Connection;
  struct Link;
  using Connections = absl::flat_hash_map<uint64_t, std::shared_ptr<Connection>>;

  void OnTick();
  void Accepted(int fd, int listener_fd, std::shared_ptr<Peer> peer);
  std::shared_ptr<Peer> FindPeer(const std::string& name);
  bool MakeRoom(Peer& peer);
  bool CloseOldest(std::deque<std::weak_ptr<Connection>>& candidates);
  void Sweep();
  void Remove(const Connection& connection);
  void HandOver(Connection& connection, int fd, int listener_fd, bool to_lane);
  void OnOffence(const std::shared_ptr<Peer>& peer, const absl::Status& status);
  void LogOnce(Peer& peer, const char* what, const absl::Status& status);

  const ListenerSinks sinks_;
  const ListenerOptions options_;
  const std::vector<ListenSocket> sockets_;
  const int max_connections_;
  const int max_connections_per_peer_;
  const std::shared_ptr<IncomingBytes> incoming_;
  // By which the threads that read reach this object, while it is there.
  const std::shared_ptr<Link> link_;
  const std::shared_ptr<ResumeTimer> resume_timer_;
  // Touched on the loop's thread alone.
  absl::flat_hash_set<std::shared_ptr<Guest>> guests_;
  absl::Status status_;
  std::vector<int> resting_;  // doors that wait for descriptors to become free
  // By socket cookie; with those that have been closed since the last sweep.
  Connections connections_;
  absl::flat_hash_map<std::string, std::shared_ptr<Peer>> peers_;
  // Oldest first; with some that have gone or have had a request.
  std::deque<std::weak_ptr<Connection>> candidates_;
  size_t sweep_at_ = 64;
  Instant next_sweep_ = absl::InfinitePast();
  Instant trim_at_ = absl::InfiniteFuture();
  Instant last_rest_log_ = absl::InfinitePast();
  // Last: its thread ends first.
  lane::EventLoop loop_;
};

}  // namespace cohort

#endif  // COHORT_BASE_RPC_LISTENER_H_
