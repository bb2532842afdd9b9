// The identity of a connection's client, and its rights at a time.
#ifndef COHORT_BASE_ACCESS_PEER_ACCESS_H_
#define COHORT_BASE_ACCESS_PEER_ACCESS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/access/access_policy.h"
#include "base/clock.h"
#include "base/threads/mutex.h"
#include "base/tls/peer_certificate.h"

namespace cohort {

// The names of the client at the other end of `fd`, the most specific one first:
//   the URIs of its certificate, but for those that look like one of the names below; "dns:NAME"
//   for each of its DNS names; "cn:NAME" for its common
//     name, if it has no other;
//   "uid:NUMBER" for a client of a Unix socket;
//   "anonymous-tls" for a client by TLS without a certificate;
//   "anonymous" for others.
std::vector<std::string> NamesOfPeer(int fd, const PeerCertificate* certificate);

// Thread-safe.
class PeerAccess {
 public:
  // Precondition: `names` is not empty. `address`: of the connection, for the log.
  PeerAccess(std::shared_ptr<AccessPolicy> policy, std::vector<std::string> names,
             std::string address = "");

  // The access of the same client by a bearer token, which counts in place of its names.
  std::shared_ptr<PeerAccess> WithToken(absl::string_view token) const;
  // A change of the policy counts from the next call on.
  std::shared_ptr<const Rights> Current(Instant now);
  const std::string& address() const { return address_; }

 private:
  PeerAccess(std::shared_ptr<AccessPolicy> policy, std::vector<std::string> names,
             std::string address, std::string token_hash);

  const std::shared_ptr<AccessPolicy> policy_;
  const std::vector<std::string> names_;
  const std::string address_;
  const std::string token_hash_;  // empty: the client has shown no token
  Mutex mutex_;
  int64_t version_ ABSL_GUARDED_BY(mutex_) = -1;
  std::shared_ptr<const Rights> rights_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_PEER_ACCESS_H_
