// The identity of a connection's client, and its rights at a time.
#ifndef COHORT_BASE_ACCESS_PEER_ACCESS_H_
#define COHORT_BASE_ACCESS_PEER_ACCESS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/token_issuers.h"
#include "base/clock.h"
#include "base/threads/mutex.h"

namespace cohort {

// Thread-safe.
class PeerAccess : public std::enable_shared_from_this<PeerAccess> {
 public:
  // A connection may have the signatures of so many tokens checked at once, and of so many more a
  // second. A check of ES384 takes longer than the handshake of a new connection.
  static constexpr int kMaxSignatureChecks = 4;
  static constexpr int kSignatureChecksPerSecond = 4;
  // The tokens of a connection that need no second check.
  static constexpr size_t kMaxKnownTokens = 4;

  // Made by std::make_shared. Precondition: `names` is not empty. `address`: of the connection, for
  // the log. `certificate_ends`: when the certificate of the connection's client does.
  PeerAccess(std::shared_ptr<AccessPolicy> policy, std::vector<std::string> names,
             std::string address = "", absl::Time certificate_ends = absl::InfiniteFuture());

  // The access of the same client by a bearer token, which counts in place of its names. The same
  // object for the last tokens.
  std::shared_ptr<PeerAccess> WithToken(absl::string_view token);
  // The access of a client in whose name this one calls, by an encoded list of its names
  // (peer_names.h). It has the rights that both have: a name takes rights away and gives none, so
  // each client may name others. Its identity is "CLIENT through THIS". Names that mean something
  // on one machine alone change the identity and no rights. The same object for the last list.
  std::shared_ptr<PeerAccess> ForClient(absl::string_view encoded_names);
  // The names of the client, for a server that calls another one in its name.
  std::vector<std::string> Names(Instant now);
  // The rights that a client with these names would have. Errors: INVALID_ARGUMENT (names that no
  // client has).
  absl::StatusOr<std::shared_ptr<const Rights>> RightsOf(
      const std::vector<std::string>& names) const;
  // A change of the policy and of an issuer's keys, and the end of a signed token, count from the
  // next call on.
  std::shared_ptr<const Rights> Current(Instant now);
  // Whether a look at the rights has found a role in some tenant, by the names of the connection or
  // by a token of it. Cheap.
  bool has_had_role() const { return has_had_role_->load(std::memory_order_relaxed); }
  // The end of the connection's certificate, also if a token counts in place of its names.
  absl::Time certificate_ends() const { return certificate_ends_; }
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
  PeerAccess(std::shared_ptr<PeerAccess> caller, std::string encoded_names);
  std::shared_ptr<const Rights> RightsThrough(std::shared_ptr<const Rights> caller) const;
  // False: the client shows too many tokens, so there is no answer now.
  bool LookLocked(Instant now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::shared_ptr<AccessPolicy> policy_;
  const std::vector<std::string> names_;  // empty: the token counts in their place
  const std::shared_ptr<const std::string> address_;
  const absl::Time certificate_ends_;
  const std::shared_ptr<SignatureBudget> budget_;
  const std::shared_ptr<std::atomic<int64_t>> paused_until_;  // nanoseconds; 0: not paused
  const std::shared_ptr<std::atomic<bool>> has_had_role_;     // of the connection and its tokens
  const std::string token_hash_;              // empty: the client has shown no token
  const std::string jwt_;                     // the token, if it may be a signed one
  const std::shared_ptr<PeerAccess> caller_;  // null: the client calls in its own name
  const std::string encoded_names_;           // of the client for which `caller_` calls
  Mutex mutex_;
  int64_t version_ ABSL_GUARDED_BY(mutex_) = -1;
  std::shared_ptr<const Rights> rights_ ABSL_GUARDED_BY(mutex_);
  std::optional<TokenIdentity> identity_ ABSL_GUARDED_BY(mutex_);  // of a signed token
  // The last one first.
  std::vector<std::shared_ptr<PeerAccess>> known_tokens_ ABSL_GUARDED_BY(mutex_);
  std::weak_ptr<PeerAccess> last_client_ ABSL_GUARDED_BY(mutex_);
  std::shared_ptr<const Rights> callers_rights_
      ABSL_GUARDED_BY(mutex_);  // of which rights_ was made
};

}  // namespace cohort

#endif  // COHORT_BASE_ACCESS_PEER_ACCESS_H_
