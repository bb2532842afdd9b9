// A connection to the coordinator, shared by any number of groups and clients of one process.
#ifndef COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_H_
#define COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/rendezvous/report/report.h"

namespace cohort::client {

struct ConnectionOptions {
  // "host:port", "[::1]:port" or "unix:/path".
  std::string address = "127.0.0.1:7700";
  std::string tenant;  // empty: "default"
  // Back-off between attempts while the coordinator is away; with 20 % jitter.
  absl::Duration min_backoff = absl::Milliseconds(50);
  absl::Duration max_backoff = absl::Seconds(2);
  absl::Duration keepalive_ping = absl::Seconds(30);
  // Largest message accepted; not below the coordinator's max_inline_bytes plus its envelope.
  int max_message_bytes = 8 << 20;
  // Whether to use http_proxy and similar variables (clusters with proxies usually do not want it).
  bool use_http_proxy = false;
  // Calls with one answer travel in plain frames on a second connection to the same port, if the
  // coordinator offers that: less work and fewer wake-ups than HTTP/2. False: everything goes by
  // gRPC.
  bool framed_rpc = true;
  // For a server that calls for a client of its own: the names of that client (docs/security.md,
  // "Workers"). The coordinator gives the calls the rights that both have. Empty: this process
  // calls in its own name.
  std::vector<std::string> client_names;
  // Called while the coordinator cannot be reached, does not answer or drains. Every call that
  // blocks meanwhile calls it about each second, from one second on, on its caller's thread.
  // Watches call it when they try again.
  std::function<void(const AwayReport&)> on_away;
};

// Thread-safe. Owns one transport connection and one thread, which renews leases, acknowledges
// answers, and runs retries and callbacks of all groups made on it. The last group or client that
// uses it destroys it.
class Connection {
 public:
  // Never blocks: the transport connects on first use and again whenever it breaks.
  // Errors: INVALID_ARGUMENT (address cannot be parsed, tenant is no name).
  static absl::StatusOr<std::shared_ptr<Connection>> Create(const ConnectionOptions& options);

  virtual ~Connection() = default;
  virtual const ConnectionOptions& options() const = 0;

 protected:
  Connection() = default;
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_RENDEZVOUS_CALL_CONNECTION_H_
