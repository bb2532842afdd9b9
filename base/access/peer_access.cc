#include "base/access/peer_access.h"

#include <sys/socket.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort {

std::vector<std::string> NamesOfPeer(int fd, const PeerCertificate* certificate) {
  std::vector<std::string> names;
  if (certificate != nullptr) {
    names = certificate->uris;
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
  return {"anonymous"};
}

PeerAccess::PeerAccess(std::shared_ptr<AccessPolicy> policy, std::vector<std::string> names)
    : policy_(std::move(policy)),
      names_(std::move(names)),
      identity_(std::make_shared<const std::string>(names_.front())) {}

std::shared_ptr<const Rights> PeerAccess::Current(Instant now) {
  const int64_t version = policy_->Version(now);
  MutexLock lock(&mutex_);
  if (version != version_) {
    rights_ = std::make_shared<const Rights>(policy_->RightsOf(names_));
    version_ = version;
  }
  return rights_;
}

}  // namespace cohort
