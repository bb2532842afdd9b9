// A peer's connection to a daemon that never blocks for long: it reads while it sends, so that a
// daemon which answers each request cannot stop it.
#ifndef COHORT_TESTS_AMPLIFICATION_PEER_SOCKET_H_
#define COHORT_TESTS_AMPLIFICATION_PEER_SOCKET_H_

#include <cstdint>
#include <functional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/unique_fd.h"

namespace cohort::amplification {

// Thread-compatible. It aborts if it cannot connect.
class PeerSocket {
 public:
  // Connects to the port of 127.0.0.1.
  explicit PeerSocket(int port);
  PeerSocket(PeerSocket&&) = default;

  // Gets all bytes that arrive. Unset: they are dropped.
  std::function<void(absl::string_view bytes)> on_input;

  // Sends all of `bytes`. False: the daemon has closed the connection, or took nothing for
  // `timeout`.
  bool Send(absl::string_view bytes, absl::Duration timeout = absl::Seconds(2));
  // Reads until `done`. False: the daemon has closed the connection, or `timeout` has passed.
  bool Await(absl::FunctionRef<bool()> done, absl::Duration timeout = absl::Seconds(2));

  bool closed() const { return closed_; }
  int64_t sent_bytes() const { return sent_bytes_; }

 private:
  void Drain();

  UniqueFd fd_;
  bool closed_ = false;
  int64_t sent_bytes_ = 0;
};

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_PEER_SOCKET_H_
