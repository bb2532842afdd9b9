#include "base/access/access_policy.h"

#include <errno.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/text/logging.h"
#include "nlohmann/json.hpp"

namespace cohort {
namespace {

constexpr int64_t kBetweenLooksMs = 1000;
constexpr size_t kMaxFileBytes = size_t{16} << 20;

using nlohmann::json;

absl::Status Wrong(absl::string_view path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat("access policy ", path, ": ", why));
}

// A field of a rule; empty: it is missing or no text.
std::string Field(const json& rule, const char* name) {
  const auto found = rule.find(name);
  return found == rule.end() || !found->is_string() ? "" : found->get<std::string>();
}

}  // namespace

Role Rights::RoleIn(absl::string_view tenant) const {
  Role highest = Role::kNone;
  for (const Grant& grant : grants) {
    if (grant.tenant == tenant || grant.tenant == kAllTenants) {
      highest = std::max(highest, grant.role);
    }
  }
  return highest;
}

Role Rights::HighestRole() const {
  Role highest = Role::kNone;
  for (const Grant& grant : grants) highest = std::max(highest, grant.role);
  return highest;
}

absl::string_view Rights::OwnTenant() const {
  for (const Grant& grant : grants) {
    if (grant.tenant != kAllTenants) return grant.tenant;
  }
  return "";
}

absl::StatusOr<AccessPolicy::Rules> AccessPolicy::Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Wrong(path, std::strerror(errno));
  std::ostringstream text;
  text << file.rdbuf();
  if (text.str().size() > kMaxFileBytes) return Wrong(path, "is larger than 16 MiB");
  const json whole = json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (whole.is_discarded()) return Wrong(path, "is not JSON");
  if (!whole.is_object() || whole.size() != 1 || !whole.contains("rules") ||
      !whole["rules"].is_array()) {
    return Wrong(path, "must be an object with the list \"rules\" alone");
  }
  Rules rules;
  for (const json& entry : whole["rules"]) {
    const std::string place = absl::StrCat("rule ", rules.size() + 1, ": ");
    if (!entry.is_object()) return Wrong(path, absl::StrCat(place, "is not an object"));
    for (const auto& [name, value] : entry.items()) {
      if (name != "identity" && name != "tenant" && name != "role") {
        return Wrong(path, absl::StrCat(place, "has no field ", name));
      }
    }
    Rule& rule = rules.emplace_back();
    const std::string pattern = Field(entry, "identity");
    absl::string_view identity = pattern;
    rule.is_prefix = absl::ConsumeSuffix(&identity, "*");
    if (pattern.empty() || absl::StrContains(identity, '*')) {
      return Wrong(path,
                   absl::StrCat(place, "identity must be a text with \"*\" at its end alone"));
    }
    rule.identity = std::string(identity);
    rule.grant.tenant = Field(entry, "tenant");
    if (rule.grant.tenant.empty() ||
        (rule.grant.tenant != kAllTenants && absl::StrContains(rule.grant.tenant, '*'))) {
      return Wrong(path, absl::StrCat(place, "tenant must be a name, or \"*\" for all"));
    }
    const std::optional<Role> role = ParseRole(Field(entry, "role"));
    if (!role.has_value() || *role == Role::kNone) {
      return Wrong(path, absl::StrCat(place, "role must be observer, member or operator"));
    }
    rule.grant.role = *role;
  }
  return rules;
}

// Changes when the file is replaced or written.
std::string AccessPolicy::StampOf(const std::string& path) {
  struct stat found = {};
  if (stat(path.c_str(), &found) != 0) return std::strerror(errno);
  return absl::StrCat(found.st_dev, ":", found.st_ino, ":", found.st_size, ":",
                      found.st_mtim.tv_sec, ".", found.st_mtim.tv_nsec);
}

absl::StatusOr<std::unique_ptr<AccessPolicy>> AccessPolicy::Load(std::string path) {
  std::string stamp = StampOf(path);
  absl::StatusOr<Rules> rules = Read(path);
  if (!rules.ok()) return rules.status();
  std::unique_ptr<AccessPolicy> policy(new AccessPolicy(std::move(path)));
  MutexLock lock(&policy->mutex_);
  policy->stamp_ = std::move(stamp);
  policy->rules_ = *std::move(rules);
  return policy;
}

Rights AccessPolicy::RightsOf(const std::vector<std::string>& names) const {
  Rights rights;
  MutexLock lock(&mutex_);
  for (const Rule& rule : rules_) {
    const bool matches = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return rule.is_prefix ? absl::StartsWith(name, rule.identity) : name == rule.identity;
    });
    if (matches) rights.grants.push_back(rule.grant);
  }
  return rights;
}

int64_t AccessPolicy::Version(Instant now) {
  const int64_t now_ms = absl::ToInt64Milliseconds(now - Instant());
  int64_t next = next_look_ms_.load(std::memory_order_relaxed);
  if (now_ms >= next && next_look_ms_.compare_exchange_strong(next, now_ms + kBetweenLooksMs)) {
    ReadAgain();
  }
  return version_.load(std::memory_order_acquire);
}

void AccessPolicy::ReadAgain() {
  std::string stamp = StampOf(path_);
  {
    MutexLock lock(&mutex_);
    if (stamp == stamp_) return;
    stamp_ = std::move(stamp);
  }
  absl::StatusOr<Rules> rules = Read(path_);
  if (!rules.ok()) {
    Log(LogLevel::kError, "the new access policy cannot be used: the old one stays",
        {{"why", rules.status().message()}});
    return;
  }
  {
    MutexLock lock(&mutex_);
    rules_ = *std::move(rules);
  }
  version_.fetch_add(1, std::memory_order_release);
  Log(LogLevel::kInfo, "the access policy was read again", {{"path", path_}});
}

}  // namespace cohort
