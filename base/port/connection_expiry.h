// Ends of connections by TLS: a connection ends when new files of the server no longer admit the
// client's certificate, at the maximal age and, if the server wants it, with the certificate.
#ifndef COHORT_BASE_PORT_CONNECTION_EXPIRY_H_
#define COHORT_BASE_PORT_CONNECTION_EXPIRY_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/tls/tls_context.h"
#include "base/tls/tls_session.h"

namespace cohort {

// Thread-compatible.
class ConnectionExpiry {
 public:
  // `tls` null: there are no connections by TLS. `max_age` zero: their age has no limit.
  // `ends_with_certificates`: as in ListenerOptions.
  ConnectionExpiry(std::shared_ptr<TlsContext> tls, absl::Duration max_age,
                   bool ends_with_certificates)
      : tls_(std::move(tls)),
        max_age_(max_age),
        ends_with_certificates_(ends_with_certificates) {}

  // The handshake of `session` is done. `cookie`: of the connection's socket. A connection leaves by
  // itself when its session is freed.
  void Add(uint64_t cookie, const std::shared_ptr<TlsSession>& session, Instant now);
  // The connections that have to be closed, and why. Looks once a second at most. A call checks some
  // certificates against new files; `more`: the next call checks further ones.
  std::vector<std::pair<uint64_t, absl::Status>> Expired(Instant now, absl::Time wall_now,
                                                         bool* more);
  bool empty() const { return connections_.empty(); }

 private:
  struct Entry {
    std::weak_ptr<TlsSession> session;
    absl::Time certificate_ends;
    Instant age_ends;
  };

  const std::shared_ptr<TlsContext> tls_;
  const absl::Duration max_age_;
  const bool ends_with_certificates_;
  absl::flat_hash_map<uint64_t, Entry> connections_;
  std::deque<uint64_t> to_verify_;
  Instant next_look_ = absl::InfinitePast();
  int64_t reloads_ = 0;
};

}  // namespace cohort

#endif  // COHORT_BASE_PORT_CONNECTION_EXPIRY_H_
