// The HTTP endpoint from which Prometheus reads a daemon's metrics.
#ifndef COHORT_BASE_DAEMON_METRICS_ENDPOINT_H_
#define COHORT_BASE_DAEMON_METRICS_ENDPOINT_H_

#include <cstddef>
#include <list>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/audit_log.h"
#include "base/daemon/metrics_access.h"
#include "base/port/socket/listen_socket.h"
#include "base/threads/event_loop.h"
#include "base/tls/stream_socket.h"
#include "prometheus/collectable.h"
#include "prometheus/registry.h"

namespace cohort {

// HTTP/1.1 with one request per connection, on one thread that waits for all of them. Connections
// take at most a quarter of the process's descriptors, and at most 256: a new one takes the place
// of the oldest. Each has `timeout` for its handshake and its request, and as long to take its
// answer. Thread-compatible.
class MetricsEndpoint {
 public:
  using Sources = std::vector<std::shared_ptr<prometheus::Collectable>>;

  // Serves /metrics at `address` to clients that `access` admits; others get 403. Metrics with a
  // label "tenant" are for observers of that tenant alone. Port 0 picks one.
  // Errors: INVALID_ARGUMENT (not host:port), UNAVAILABLE (cannot be bound; names the address),
  // RESOURCE_EXHAUSTED (threads, descriptors).
  static absl::StatusOr<std::unique_ptr<MetricsEndpoint>> Start(
      const std::string& address, Sources sources, MetricsAccess access = {},
      absl::Duration timeout = absl::Seconds(3));
  // Stops, after a scrape that is running.
  ~MetricsEndpoint();
  MetricsEndpoint(const MetricsEndpoint&) = delete;
  MetricsEndpoint& operator=(const MetricsEndpoint&) = delete;

  int port() const { return sockets_.front().port(); }

 private:
  class Acceptor;
  class Scrape;

  MetricsEndpoint(std::vector<ListenSocket> sockets, Sources sources, MetricsAccess access,
                  absl::Duration timeout);
  void OnTick();
  // Makes room. Connections that have sent nothing go first, and then those without a whole
  // request.
  void CloseOldest();
  // The rights of the client at `socket`, which may read metrics; null: there is no policy. Errors:
  // PERMISSION_DENIED, with the reason.
  absl::StatusOr<std::shared_ptr<const Rights>> Admit(const std::string& request,
                                                      const StreamSocket& socket);
  std::string Answer(const std::string& request, const StreamSocket& socket);
  // All metrics that a client with these rights may see. Scrapes that come together share a look at
  // the sources, which then is less old than the time it took: so a flood takes half of the thread
  // for looks at most.
  const std::string& Text(const Rights* rights);
  bool OthersWait() const;

  const std::vector<ListenSocket> sockets_;
  const Sources sources_;
  const MetricsAccess access_;
  const absl::Duration timeout_;
  const size_t most_connections_;
  AuditLog audit_;
  // Only the loop's thread uses these.
  std::string text_;
  std::string text_is_for_;  // grants
  Instant text_is_old_at_ = absl::InfinitePast();
  std::list<std::shared_ptr<Scrape>> scrapes_;  // oldest first
  std::vector<int> resting_;  // acceptors that wait for descriptors to become free
  // Last: its thread ends first.
  EventLoop loop_;
};

// The metrics of `sources` as Prometheus reads them: those that a client with `rights` may see, or
// all without `rights`.
std::string MetricsText(const MetricsEndpoint::Sources& sources, const Rights* rights = nullptr);

}  // namespace cohort

#endif  // COHORT_BASE_DAEMON_METRICS_ENDPOINT_H_
