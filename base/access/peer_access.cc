#include "base/access/peer_access.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/access/jwt.h"
#include "base/access/token_hash.h"
#include "base/peer_user.h"

namespace cohort {

namespace {

// Whether a certificate's URI could be taken for a name that no certificate gives.
bool LooksLikeOtherName(absl::string_view uri) {
  constexpr std::array<absl::string_view, 6> kOthers = {
      "dns:", "cn:", "uid:", "token:", "jwt:", "anonymous"};
  return std::any_of(kOthers.begin(), kOthers.end(),
                     [uri](absl::string_view other) { return absl::StartsWith(uri, other); });
}

constexpr char kWithToken[] = "a client with a token ";

std::shared_ptr<const Rights> NoRights(std::string identity) {
  Rights none;
  none.identity = std::make_shared<const std::string>(std::move(identity));
  return std::make_shared<const Rights>(std::move(none));
}

}  // namespace

std::vector<std::string> NamesOfPeer(int fd, const PeerCertificate* certificate) {
  std::vector<std::string> names;
  if (certificate != nullptr) {
    for (const std::string& uri : certificate->uris) {
      if (!LooksLikeOtherName(uri)) names.push_back(uri);
    }
    for (const std::string& name : certificate->dns_names) {
      names.push_back(absl::StrCat("dns:", name));
    }
    if (names.empty() && !certificate->common_name.empty()) {
      names.push_back(absl::StrCat("cn:", certificate->common_name));
    }
  }
  if (!names.empty()) return names;
  int domain = 0;
  socklen_t size = sizeof(domain);
  ucred credentials = {};
  socklen_t credentials_size = sizeof(credentials);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &size) == 0 && domain == AF_UNIX &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &credentials_size) == 0 &&
      IsOneUser(credentials.uid)) {
    return {absl::StrCat("uid:", credentials.uid)};
  }
  return {certificate == nullptr ? "anonymous" : "anonymous-tls"};
}

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
                       std::string address)
    : policy_(std::move(policy)),
      names_(std::move(names)),
      address_(std::make_shared<const std::string>(std::move(address))),
      budget_(std::make_shared<SignatureBudget>()),
      paused_until_(std::make_shared<std::atomic<int64_t>>(0)) {}

PeerAccess::PeerAccess(const PeerAccess& connection, absl::string_view token, std::string hash)
    : policy_(connection.policy_),
      names_(policy_->takes_tokens() ? std::vector<std::string>() : connection.names_),
      address_(connection.address_),
      budget_(connection.budget_),
      paused_until_(connection.paused_until_),
      token_hash_(std::move(hash)),
      jwt_(LooksLikeJwt(token) ? token : "") {}

std::shared_ptr<PeerAccess> PeerAccess::WithToken(absl::string_view token) {
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
  MutexLock lock(&mutex_);
  if (version != version_) {
    if (!LookLocked(now)) return NoRights("a client with too many different tokens");
    version_ = version;
  }
  if (identity_.has_value()) {
    const absl::Status valid = identity_->CheckTime(policy_->WallNow());
    if (!valid.ok()) return NoRights(absl::StrCat(kWithToken, valid.message()));
  }
  return rights_;
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
