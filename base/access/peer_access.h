// The identity of a connection's client, and its rights at a time.
#ifndef COHORT_BASE_ACCESS_PEER_ACCESS_H_
#define COHORT_BASE_ACCESS_PEER_ACCESS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/string_view.h"
#include "base/access/access_policy.h"
#include "base/access/token_issuers.h"
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
  // A connection may have the signatures of so many tokens checked at once, and of so many more a
  // second. A check of ES384 takes longer than the handshake of a new connection.
  static constexpr int kMaxSignatureChecks = 4;
  static constexpr int kSignatureChecksPerSecond = 4;
  // The tokens of a connection that need no second check.
  static constexpr size_t kMaxKnownTokens = 4;

  // Precondition: `names` is not empty. `address`: of the connection, for the log.
  PeerAccess(std::shared_ptr<AccessPolicy> policy, std::vector<std::string> names,
             std::string address = "");

  // The access of the same client by a bearer token, which counts in place of its names. The same
  // object for the last tokens.
  std::shared_ptr<PeerAccess> WithToken(absl::string_view token);
  // A change of the policy and of an issuer's keys, and the end of a signed token, count from the
  // next call on.
  std::shared_ptr<const Rights> Current(Instant now);
  // Never null.
  const std::shared_ptr<const std::string>& address() const { return address_; }

  // Asks the reader of the connection to read nothing until `until`, because the client's tenant is
  // over its rate. A later end counts. The tokens of a connection have one pause.
  void PauseReading(Instant until);
  // Whether the reader has to wait, and until when. Cheap while no pause was asked for.
  std::optional<Instant> Pause();

 private:
  // The signature checks of all tokens of a connection.
  class SignatureBudget;

  PeerAccess(const PeerAccess& connection, absl::string_view token, std::string hash);
  // False: the client shows too many tokens, so there is no answer now.
  bool LookLocked(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<AccessPolicy> policy_;
  const std::vector<std::string> names_;  // empty: the token counts in their place
  const std::shared_ptr<const std::string> address_;
  const std::shared_ptr<SignatureBudget> budget_;
  const std::shared_ptr<std::atomic<int64_t>> paused_until_;  // nanoseconds; 0: not paused
  const std::string token_hash_;  // empty: the client has shown no token
  const std::string jwt_;         // the token, if it may be a signed one
  Mutex mutex_;
  int64_t version_ ABSL_GUARDED_BY(mutex_) = -1;
  std::shared_ptr<const Rights> rights_ ABSL_GUARDED_BY(mutex_);
  std::optional<TokenIdentity> identity_ ABSL_GUARDED_BY(mutex_);  // of a signed token
  // The last one first.
  std::vector<std::shared_ptr<PeerAccess>> known_tokens_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_PEER_ACCESS_H_
