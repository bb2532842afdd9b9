// A connection to another rank.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_SOCKET_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_SOCKET_H_

#include <memory>
#include <utility>

#include "base/tls/stream_socket.h"
#include "base/unique_fd.h"

namespace cohort::worker {

// A socket that is plain or has TLS on it. Movable; closed with the object.
class RankSocket {
 public:
  RankSocket() = default;
  explicit RankSocket(UniqueFd fd) : fd_(std::move(fd)) { stream_.fd = fd_.get(); }

  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  // From here on, all bytes go through `tls`, a session over this socket.
  void set_tls(std::shared_ptr<TlsSession> tls) { stream_.tls = std::move(tls); }
  bool has_tls() const { return stream_.tls != nullptr; }
  const StreamSocket& stream() const { return stream_; }

 private:
  UniqueFd fd_;
  StreamSocket stream_;  // destroyed first
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_RANK_SOCKET_H_
