#include "base/port/connection_expiry.h"

#include <openssl/ssl.h>

#include "absl/strings/str_cat.h"

namespace cohort {
namespace {

constexpr absl::Duration kBetweenLooks = absl::Seconds(1);
// Certificates checked by one call: some 10 ms.
constexpr int kVerifiedAtOnce = 50;

// Connections that began together end apart: 0.9 to 1 of the age.
absl::Duration AgeOf(absl::Duration max_age, uint64_t cookie) {
  const uint64_t spread = (cookie * 0x9e3779b97f4a7c15u) >> 54;  // 0 to 1023
  return max_age - max_age / 10 * (static_cast<double>(spread) / 1024);
}

}  // namespace

void ConnectionExpiry::Add(uint64_t cookie, const std::shared_ptr<TlsSession>& session,
                           Instant now) {
  // The files may have changed since the handshake began.
  if (!session->uses(*tls_->Current(now))) to_verify_.push_back(cookie);
  const Instant age_ends = max_age_ > absl::ZeroDuration() ? now + AgeOf(max_age_, cookie)
                                                           : absl::InfiniteFuture();
  connections_[cookie] = Entry{session, session->peer().not_after, age_ends};
}

std::vector<std::pair<uint64_t, absl::Status>> ConnectionExpiry::Expired(Instant now,
                                                                         absl::Time wall_now,
                                                                         bool* more) {
  std::vector<std::pair<uint64_t, absl::Status>> expired;
  if (now >= next_look_) {
    next_look_ = now + kBetweenLooks;
    tls_->Current(now);
    const bool changed = tls_->reloads() != reloads_;
    reloads_ = tls_->reloads();
    if (changed) to_verify_.clear();
    for (auto it = connections_.begin(); it != connections_.end();) {
      const auto& [cookie, entry] = *it;
      if (ends_with_certificates_ && wall_now > entry.certificate_ends) {
        expired.emplace_back(cookie, absl::UnauthenticatedError(absl::StrCat(
                                         "the client's certificate has ended at ",
                                         absl::FormatTime(entry.certificate_ends))));
      } else if (now > entry.age_ends) {
        expired.emplace_back(cookie, absl::UnavailableError(absl::StrCat(
                                         "--max-connection-age (",
                                         absl::FormatDuration(max_age_), ")")));
      } else if (!entry.session.expired()) {
        if (changed) to_verify_.push_back(cookie);
        ++it;
        continue;
      }
      connections_.erase(it++);
    }
  }
  if (!to_verify_.empty()) {
    const std::shared_ptr<SSL_CTX> context = tls_->Current(now);
    for (int i = 0; i < kVerifiedAtOnce && !to_verify_.empty(); ++i) {
      const auto found = connections_.find(to_verify_.front());
      to_verify_.pop_front();
      if (found == connections_.end()) continue;
      const std::shared_ptr<TlsSession> session = found->second.session.lock();
      absl::Status verified = session == nullptr ? absl::OkStatus() : session->VerifyAgain(*context);
      if (verified.ok()) continue;
      expired.emplace_back(found->first, std::move(verified));
      connections_.erase(found);
    }
  }
  *more = !to_verify_.empty();
  return expired;
}

}  // namespace cohort
