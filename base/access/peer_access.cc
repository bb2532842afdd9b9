#include "base/access/peer_access.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/access/jwt.h"
#include "base/access/peer_names.h"
#include "base/access/token_hash.h"
#include "base/rpc/client_names.h"

namespace cohort {

namespace {

constexpr char kWithToken[] = "a client with a token ";

std::shared_ptr<const Rights> NoRights(std::string identity) {
  Rights none;
  none.identity = std::make_shared<const std::string>(std::move(identity));
  return std::make_shared<const Rights>(std::move(none));
}

}  // namespace

// A bucket that starts full. Thread-safe.
class PeerAccess::SignatureBudget {
 public:
  // False: the client has to wait.
  bool Take(Instant now) {
    MutexLock lock(&mutex_);
    const double refilled = absl::ToDoubleSeconds(std::max(now - last_, absl::ZeroDuration())) *
                            kSignatureChecksPerSecond;
    left_ = std::min<double>(left_ + refilled, kMaxSignatureChecks);
    last_ = now;
    if (left_ < 1) return false;
    --left_;
    return true;
  }

 private:
  Mutex mutex_;
  double left_ ABSL_GUARDED_BY(mutex_) = kMaxSignatureChecks;
  Instant last_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

PeerAccess::PeerAccess(std::shared_ptr<AccessPolicy> policy, std::vector<std::string> names,
                       std::string address, absl::Time certificate_ends)
    : policy_(std::move(policy)),
      names_(std::move(names)),
      address_(std::make_shared<const std::string>(std::move(address))),
      certificate_ends_(certificate_ends),
      budget_(std::make_shared<SignatureBudget>()),
      paused_until_(std::make_shared<std::atomic<int64_t>>(0)),
      has_had_role_(std::make_shared<std::atomic<bool>>(false)) {}

PeerAccess::PeerAccess(const PeerAccess& connection, absl::string_view token, std::string hash)
    : policy_(connection.policy_),
      names_(policy_->takes_tokens() ? std::vector<std::string>() : connection.names_),
      address_(connection.address_),
      certificate_ends_(connection.certificate_ends_),
      budget_(connection.budget_),
      paused_until_(connection.paused_until_),
      has_had_role_(connection.has_had_role_),
      token_hash_(std::move(hash)),
      jwt_(LooksLikeJwt(token) ? token : "") {}

PeerAccess::PeerAccess(std::shared_ptr<PeerAccess> caller, std::string encoded_names)
    : policy_(caller->policy_),
      names_(DecodeClientNames(encoded_names)),
      address_(caller->address_),
      certificate_ends_(caller->certificate_ends_),
      budget_(caller->budget_),
      paused_until_(caller->paused_until_),
      has_had_role_(caller->has_had_role_),
      caller_(std::move(caller)),
      encoded_names_(std::move(encoded_names)) {}

std::shared_ptr<PeerAccess> PeerAccess::WithToken(absl::string_view token) {
  if (caller_ != nullptr) return caller_->WithToken(token)->ForClient(encoded_names_);
  std::string hash = HashToken(token);
  std::shared_ptr<PeerAccess> forgotten;  // outlives the lock
  MutexLock lock(&mutex_);
  auto found = std::find_if(known_tokens_.begin(), known_tokens_.end(),
                            [&hash](const auto& known) { return known->token_hash_ == hash; });
  if (found == known_tokens_.end()) {
    if (known_tokens_.size() == kMaxKnownTokens) {
      forgotten = std::move(known_tokens_.back());
      known_tokens_.pop_back();
    }
    known_tokens_.push_back(
        std::shared_ptr<PeerAccess>(new PeerAccess(*this, token, std::move(hash))));
    found = known_tokens_.end() - 1;
  }
  std::rotate(known_tokens_.begin(), found, found + 1);
  return known_tokens_.front();
}

std::shared_ptr<PeerAccess> PeerAccess::ForClient(absl::string_view encoded_names) {
  std::shared_ptr<PeerAccess> before;  // outlives the lock
  MutexLock lock(&mutex_);
  before = last_client_.lock();
  if (before != nullptr && before->encoded_names_ == encoded_names) return before;
  std::shared_ptr<PeerAccess> client(
      new PeerAccess(shared_from_this(), std::string(encoded_names)));
  last_client_ = client;
  return client;
}

std::vector<std::string> PeerAccess::Names(Instant now) {
  return names_.empty() ? std::vector<std::string>{*Current(now)->identity} : names_;
}

absl::StatusOr<std::shared_ptr<const Rights>> PeerAccess::RightsOf(
    const std::vector<std::string>& names) const {
  if (DecodeClientNames(EncodeClientNames(names)).size() != names.size()) {
    return absl::InvalidArgumentError(absl::StrCat("names: expected 1 to ", kMaxClientNamesBytes,
                                                   " bytes of UTF-8 in all, at most 2048 each"));
  }
  return std::make_shared<const Rights>(policy_->RightsOf(names));
}

void PeerAccess::PauseReading(Instant until) {
  // The calls of a connection may be of several tenants.
  const int64_t wanted = absl::ToUnixNanos(until);
  int64_t paused = paused_until_->load(std::memory_order_relaxed);
  while (paused < wanted &&
         !paused_until_->compare_exchange_weak(paused, wanted, std::memory_order_relaxed)) {
  }
}

std::optional<Instant> PeerAccess::Pause() {
  int64_t nanos = paused_until_->load(std::memory_order_relaxed);
  if (nanos == 0) return std::nullopt;
  const Instant until = absl::FromUnixNanos(nanos);
  if (until > Clock::Steady().Now()) return until;
  // Another thread may have asked for the next pause.
  paused_until_->compare_exchange_strong(nanos, 0, std::memory_order_relaxed);
  return std::nullopt;
}

std::shared_ptr<const Rights> PeerAccess::Current(Instant now) {
  const int64_t version = policy_->Version(now);
  const std::shared_ptr<const Rights> callers =
      caller_ == nullptr ? nullptr : caller_->Current(now);
  MutexLock lock(&mutex_);
  if (callers != nullptr) {
    if (version != version_ || callers != callers_rights_) rights_ = RightsThrough(callers);
    version_ = version;
    callers_rights_ = callers;
    return rights_;
  }
  if (version != version_) {
    if (!LookLocked(now)) return NoRights("a client with too many different tokens");
    version_ = version;
    if (rights_->HighestRole() > Role::kNone) has_had_role_->store(true, std::memory_order_relaxed);
  }
  if (identity_.has_value()) {
    const absl::Status valid = identity_->CheckTime(policy_->WallNow());
    if (!valid.ok()) return NoRights(absl::StrCat(kWithToken, valid.message()));
  }
  return rights_;
}

std::shared_ptr<const Rights> PeerAccess::RightsThrough(
    std::shared_ptr<const Rights> caller) const {
  // A caller without rights cannot use names to be many clients.
  if (caller->HighestRole() == Role::kNone) return caller;
  if (names_.empty())
    return NoRights(absl::StrCat("a client without a name", kThrough, *caller->identity));
  Rights rights = policy_->RightsOf(names_);
  if (!IsNameOfCertificateOrToken(names_.front())) rights.grants = caller->grants;
  rights.identity = std::make_shared<const std::string>(
      absl::StrCat(names_.front(), kThrough, *caller->identity));
  rights.caller = std::move(caller);
  return std::make_shared<const Rights>(std::move(rights));
}

bool PeerAccess::LookLocked(Instant now) {
  if (!names_.empty()) {
    rights_ = std::make_shared<const Rights>(policy_->RightsOf(names_));
    return true;
  }
  // A token of the list may look like a signed one.
  if (std::optional<Rights> rights = policy_->RightsOfToken(token_hash_); rights.has_value()) {
    identity_.reset();
    rights_ = std::make_shared<const Rights>(*std::move(rights));
    return true;
  }
  if (jwt_.empty() || !policy_->has_issuers()) {
    identity_.reset();
    rights_ = NoRights("a client with an unknown token");
    return true;
  }
  if (!budget_->Take(now)) return false;
  absl::StatusOr<SignedTokenRights> found = policy_->RightsOfSignedToken(jwt_);
  if (found.ok()) {
    identity_ = std::move(found->identity);
    rights_ = std::make_shared<const Rights>(std::move(found->rights));
  } else {
    identity_.reset();
    rights_ = NoRights(absl::StrCat(kWithToken, found.status().message()));
  }
  return true;
}

}  // namespace cohort
