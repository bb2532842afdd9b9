#include "base/access/peer_access.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/access/token_hash.h"

namespace cohort {

namespace {

// Whether a certificate's URI could be taken for a name that no certificate gives.
bool LooksLikeOtherName(absl::string_view uri) {
  constexpr std::array<absl::string_view, 5> kOthers = {
      "dns:", "cn:", "uid:", "token:", "anonymous"};
  return std::any_of(kOthers.begin(), kOthers.end(),
                     [uri](absl::string_view other) { return absl::StartsWith(uri, other); });
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
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &credentials_size) == 0) {
    return {absl::StrCat("uid:", credentials.uid)};
  }
  return {certificate == nullptr ? "anonymous" : "anonymous-tls"};
}

PeerAccess::PeerAccess(std::shared_ptr<AccessPolicy> policy, std::vector<std::string> names,
                       std::string address)
    : PeerAccess(std::move(policy), std::move(names), std::move(address), "") {}

PeerAccess::PeerAccess(std::shared_ptr<AccessPolicy> policy, std::vector<std::string> names,
                       std::string address, std::string token_hash)
    : policy_(std::move(policy)),
      names_(std::move(names)),
      address_(std::move(address)),
      token_hash_(std::move(token_hash)) {}

std::shared_ptr<PeerAccess> PeerAccess::WithToken(absl::string_view token) const {
  return std::shared_ptr<PeerAccess>(new PeerAccess(policy_, names_, address_, HashToken(token)));
}

std::shared_ptr<const Rights> PeerAccess::Current(Instant now) {
  const int64_t version = policy_->Version(now);
  MutexLock lock(&mutex_);
  if (version != version_) {
    rights_ = std::make_shared<const Rights>(
        token_hash_.empty() ? policy_->RightsOf(names_) : policy_->RightsOfToken(token_hash_));
    version_ = version;
  }
  return rights_;
}

}  // namespace cohort
