#include "base/access/access_policy.h"

#include <unistd.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/access/json_fields.h"
#include "base/access/peer_names.h"
#include "base/access/token_hash.h"
#include "base/file_stamp.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "nlohmann/json.hpp"

namespace cohort {
namespace {

constexpr int64_t kBetweenLooksMs = 1000;
constexpr char kTokenPrefix[] = "token:";

using nlohmann::json;

absl::Status Wrong(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("access policy ", path, ": ", why));
}

struct Token {
  std::string hash;
  std::string name;
};

absl::StatusOr<Token> ReadToken(const json& entry) {
  COHORT_RETURN_IF_ERROR(CheckFields(entry, {"name", "sha256"}));
  Token token;
  token.name = TextField(entry, "name");
  if (token.name.empty() || absl::StrContains(token.name, '*') ||
      absl::StrContains(token.name, kThrough)) {
    return absl::InvalidArgumentError("name must be a text without \"*\" and \" through \"");
  }
  const std::string hash = TextField(entry, "sha256");
  const bool is_hash = hash.size() == 2 * kTokenHashBytes &&
                       std::all_of(hash.begin(), hash.end(), absl::ascii_isxdigit);
  if (!is_hash) {
    return absl::InvalidArgumentError("sha256 must be the token's SHA-256 in 64 hex digits");
  }
  token.hash = absl::HexStringToBytes(hash);
  // The hash of a file that was not there; a client without a token would have its rights.
  if (token.hash == HashToken("")) {
    return absl::InvalidArgumentError("sha256 is that of the empty token");
  }
  return token;
}

}  // namespace

Role Rights::RoleIn(absl::string_view tenant) const {
  Role highest = Role::kNone;
  for (const Grant& grant : grants) {
    if (grant.tenant == tenant || grant.tenant == kAllTenants) {
      highest = std::max(highest, grant.role);
    }
  }
  return caller == nullptr ? highest : std::min(highest, caller->RoleIn(tenant));
}

Role Rights::HighestRole() const {
  Role highest = Role::kNone;
  for (const Grant& grant : grants) highest = std::max(highest, grant.role);
  return caller == nullptr ? highest : std::min(highest, caller->HighestRole());
}

absl::string_view Rights::OwnTenant() const {
  for (const Grant& grant : grants) {
    if (grant.tenant != kAllTenants && RoleIn(grant.tenant) != Role::kNone) return grant.tenant;
  }
  // The client has its role in all tenants, so the caller's own one counts.
  return caller == nullptr || RoleIn(caller->OwnTenant()) == Role::kNone ? "" : caller->OwnTenant();
}

absl::string_view Rights::ResolveTenant(absl::string_view tenant) const {
  const bool is_own = tenant == kDefaultTenant && RoleIn(tenant) == Role::kNone;
  return is_own && !OwnTenant().empty() ? OwnTenant() : tenant;
}

absl::StatusOr<AccessPolicy::Rule> AccessPolicy::ReadRule(const json& entry) {
  COHORT_RETURN_IF_ERROR(CheckFields(entry, {"identity", "tenant", "role"}));
  Rule rule;
  const std::string pattern = TextField(entry, "identity");
  absl::string_view identity = pattern;
  rule.is_prefix = absl::ConsumeSuffix(&identity, "*");
  if (pattern.empty() || absl::StrContains(identity, '*')) {
    return absl::InvalidArgumentError("identity must be a text with \"*\" at its end alone");
  }
  rule.identity = std::string(identity);
  rule.grant.tenant = TextField(entry, "tenant");
  if (rule.grant.tenant.empty() ||
      (rule.grant.tenant != kAllTenants && absl::StrContains(rule.grant.tenant, '*'))) {
    return absl::InvalidArgumentError("tenant must be a name, or \"*\" for all");
  }
  const std::optional<Role> role = ParseRole(TextField(entry, "role"));
  if (!role.has_value() || *role == Role::kNone) {
    return absl::InvalidArgumentError("role must be observer, member or operator");
  }
  rule.grant.role = *role;
  return rule;
}

absl::StatusOr<AccessPolicy::Content> AccessPolicy::Read(
    const std::string& path, const std::vector<TokenIssuer>& issuers_before) {
  const absl::StatusOr<std::string> text = ReadWatchedFile(path);
  if (!text.ok()) return Wrong(path, text.status().message());
  const absl::StatusOr<json> whole = ParseStrictJson(*text);
  if (!whole.ok()) return Wrong(path, whole.status().message());
  if (absl::Status status = CheckFields(*whole, {"rules", "tokens", "issuers"}); !status.ok()) {
    return Wrong(path, status.message());
  }
  const json rules = whole->value("rules", json());
  const json tokens = whole->value("tokens", json::array());
  if (!rules.is_array() || !tokens.is_array()) {
    return Wrong(path, "must have the list \"rules\", and may have the list \"tokens\"");
  }
  Content content;
  for (const json& entry : rules) {
    absl::StatusOr<Rule> rule = ReadRule(entry);
    if (!rule.ok()) {
      return Wrong(path,
                   absl::StrCat("rule ", content.grants.size() + 1, ": ", rule.status().message()));
    }
    content.Add(*std::move(rule));
  }
  for (const json& entry : tokens) {
    absl::StatusOr<Token> token = ReadToken(entry);
    const bool added = token.ok() && content.token_names.emplace(token->hash, token->name).second;
    if (added) {
      content.tokens.insert(token->name);
      continue;
    }
    return Wrong(path, absl::StrCat("token ", content.token_names.size() + 1, ": ",
                                    token.ok() ? "is there twice" : token.status().message()));
  }
  absl::StatusOr<std::vector<TokenIssuer>> issuers =
      ReadTokenIssuers(whole->value("issuers", json::array()), issuers_before);
  if (!issuers.ok()) return Wrong(path, issuers.status().message());
  content.issuers = *std::move(issuers);
  return content;
}

absl::StatusOr<std::unique_ptr<AccessPolicy>> AccessPolicy::Load(std::string path,
                                                                 WallClock wall_clock) {
  std::string stamp = FileStamp(path).value_or("");
  absl::StatusOr<Content> content = Read(path, {});
  if (!content.ok()) return content.status();
  std::unique_ptr<AccessPolicy> policy(new AccessPolicy(std::move(path), std::move(wall_clock)));
  policy->stamp_ = std::move(stamp);
  MutexLock lock(&policy->mutex_);
  policy->content_ = std::make_shared<const Content>(*std::move(content));
  return policy;
}

std::unique_ptr<AccessPolicy> AccessPolicy::WithoutFile() {
  const std::string own_user = absl::StrCat("uid:", geteuid());
  Content content;
  content.grants.push_back({std::string(kAllTenants), Role::kMember});
  content.any_certificate.push_back(0);
  content.Add(Rule{own_user, false, {std::string(kAllTenants), Role::kOperator}});
  std::unique_ptr<AccessPolicy> policy(new AccessPolicy("", absl::Now));
  MutexLock lock(&policy->mutex_);
  policy->content_ = std::make_shared<const Content>(std::move(content));
  return policy;
}

std::shared_ptr<const AccessPolicy::Content> AccessPolicy::content() const {
  MutexLock lock(&mutex_);
  return content_;
}

void AccessPolicy::Content::Add(Rule rule) {
  if (rule.is_prefix) prefix_sizes.insert(rule.identity.size());
  (rule.is_prefix ? prefixes : exact)[rule.identity].push_back(grants.size());
  grants.push_back(std::move(rule.grant));
}

Rights AccessPolicy::Content::RightsOf(const std::vector<std::string>& names) const {
  std::set<size_t> matches;
  const auto add = [&matches](const Places& places, absl::string_view identity) {
    const auto found = places.find(identity);
    if (found != places.end()) matches.insert(found->second.begin(), found->second.end());
  };
  for (const absl::string_view name : names) {
    add(exact, name);
    for (const size_t size : prefix_sizes) {
      if (size > name.size()) break;
      add(prefixes, name.substr(0, size));
    }
    if (IsNameOfCertificateOrToken(name)) {
      matches.insert(any_certificate.begin(), any_certificate.end());
    }
  }
  Rights rights;
  rights.identity = std::make_shared<const std::string>(names.front());
  for (const size_t place : matches) rights.grants.push_back(grants[place]);
  return rights;
}

Rights AccessPolicy::RightsOf(const std::vector<std::string>& names) const {
  return content()->RightsOf(names);
}

Rights AccessPolicy::RemainingRightsOf(const std::vector<std::string>& names) const {
  const std::shared_ptr<const Content> content = this->content();
  Rights rights = content->RightsOf(names);
  absl::string_view token = names.front();
  if (absl::ConsumePrefix(&token, kTokenPrefix) && !content->tokens.contains(token)) {
    rights.grants.clear();
  }
  return rights;
}

std::optional<Rights> AccessPolicy::RightsOfToken(const std::string& hash) const {
  const std::shared_ptr<const Content> content = this->content();
  const auto found = content->token_names.find(hash);
  if (found == content->token_names.end()) return std::nullopt;
  return content->RightsOf({absl::StrCat(kTokenPrefix, found->second)});
}

bool AccessPolicy::has_issuers() const { return !content()->issuers.empty(); }

bool AccessPolicy::keys_are_usable() const {
  const std::shared_ptr<const Content> content = this->content();
  return std::all_of(content->issuers.begin(), content->issuers.end(),
                     [](const TokenIssuer& issuer) { return issuer.keys->is_usable(); });
}

absl::StatusOr<SignedTokenRights> AccessPolicy::RightsOfSignedToken(absl::string_view token) const {
  const std::shared_ptr<const Content> content = this->content();
  SignedTokenRights found;
  COHORT_ASSIGN_OR_RETURN(found.identity, VerifyJwt(token, content->issuers));
  if (absl::StrContains(found.identity.name, kThrough)) {
    return absl::PermissionDeniedError("whose subject contains \" through \"");
  }
  found.rights = content->RightsOf({found.identity.name});
  return found;
}

int64_t AccessPolicy::Version(Instant now) {
  if (path_.empty()) return 0;
  if (watched_.load(std::memory_order_relaxed)) return version_.load(std::memory_order_acquire);
  const int64_t now_ms = absl::ToInt64Milliseconds(now - Instant());
  int64_t next = next_look_ms_.load(std::memory_order_relaxed);
  if (now_ms >= next && next_look_ms_.compare_exchange_strong(next, now_ms + kBetweenLooksMs)) {
    ReadAgain();
  }
  return version_.load(std::memory_order_acquire);
}

void AccessPolicy::ReadAgain() {
  if (reading_.exchange(true, std::memory_order_acquire)) return;
  if (std::string stamp = FileStamp(path_).value_or(""); stamp.empty() || stamp != stamp_) {
    TakeFile(std::move(stamp));
  }
  TakeKeys();
  reading_.store(false, std::memory_order_release);
}

void AccessPolicy::TakeFile(std::string stamp) {
  absl::StatusOr<Content> content = Read(path_, this->content()->issuers);
  file_is_usable_.store(content.ok(), std::memory_order_relaxed);
  if (!content.ok()) {
    stamp_.clear();
    std::string error(content.status().message());
    if (error == last_error_) return;
    last_error_ = std::move(error);
    Log(LogLevel::kError, "the new access policy cannot be used: the old one stays",
        {{"why", last_error_}});
    return;
  }
  stamp_ = std::move(stamp);
  last_error_.clear();
  {
    MutexLock lock(&mutex_);
    content_ = std::make_shared<const Content>(*std::move(content));
  }
  version_.fetch_add(1, std::memory_order_release);
  Log(LogLevel::kInfo, "the access policy was read again", {{"path", path_}});
}

void AccessPolicy::TakeKeys() {
  bool changed = false;
  for (const TokenIssuer& issuer : content()->issuers) changed |= issuer.keys->LookAgain();
  if (changed) version_.fetch_add(1, std::memory_order_release);
}

}  // namespace cohort
