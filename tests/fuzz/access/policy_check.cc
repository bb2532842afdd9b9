#include "tests/fuzz/access/policy_check.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/access/access_policy.h"
#include "base/access/role.h"
#include "base/access/token_hash.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/text/logging.h"
#include "nlohmann/json.hpp"

namespace cohort::fuzz {
namespace {

using nlohmann::json;

// No rule of a fuzzer has this tenant.
constexpr char kOtherTenant[] = "a tenant that no rule names";
constexpr char kStranger[] = "\x01 a client that no rule names";

absl::Status Violation(absl::string_view what) { return absl::InternalError(what); }

// A file in a folder of this process.
class PolicyFile {
 public:
  PolicyFile() {
    char folder[] = "/tmp/cohort-policy-XXXXXX";
    if (mkdtemp(folder) == nullptr) std::abort();
    path_ = absl::StrCat(folder, "/policy.json");
  }
  void Write(absl::string_view text) const {
    const std::string next = path_ + ".next";
    std::ofstream(next, std::ios::binary) << text;
    if (rename(next.c_str(), path_.c_str()) != 0) std::abort();
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

bool Matches(absl::string_view pattern, absl::string_view name) {
  return absl::ConsumeSuffix(&pattern, "*") ? absl::StartsWith(name, pattern) : name == pattern;
}

// The role by the rules of the file, read here a second time.
Role Expected(const json& rules, absl::string_view name, absl::string_view tenant) {
  Role highest = Role::kNone;
  for (const json& rule : rules) {
    const auto of = rule["tenant"].get<std::string>();
    if (!Matches(rule["identity"].get<std::string>(), name)) continue;
    if (of != tenant && of != kAllTenants) continue;
    highest = std::max(highest, ParseRole(rule["role"].get<std::string>()).value());
  }
  return highest;
}

absl::Status CheckRights(const AccessPolicy& policy, const json& rules, const std::string& name) {
  const Rights rights = policy.RightsOf({name});
  if (*rights.identity != name) return Violation("a client got the identity of another one");
  std::vector<std::string> tenants = {kOtherTenant, std::string(kAllTenants)};
  for (const json& rule : rules) tenants.push_back(rule["tenant"].get<std::string>());
  for (const std::string& tenant : tenants) {
    if (rights.RoleIn(tenant) != Expected(rules, name, tenant)) {
      return Violation(absl::StrCat("the role of '", absl::CHexEscape(name), "' in '",
                                    absl::CHexEscape(tenant), "' is not that of the rules"));
    }
    if (rights.RoleIn(tenant) > rights.HighestRole()) return Violation("a role above the highest");
  }
  return absl::OkStatus();
}

absl::Status CheckTokens(const AccessPolicy& policy, const json& tokens) {
  if (policy.RightsOfToken(HashToken(kStranger)).has_value()) {
    return Violation("an unknown token has rights");
  }
  for (const json& token : tokens) {
    const std::string hash = absl::HexStringToBytes(token["sha256"].get<std::string>());
    const std::string name = absl::StrCat("token:", token["name"].get<std::string>());
    const std::optional<Rights> rights = policy.RightsOfToken(hash);
    if (!rights.has_value() || *rights->identity != name) {
      return Violation("a token does not have its name");
    }
  }
  return absl::OkStatus();
}

// A server that runs keeps its policy, or takes all of the new one.
absl::Status CheckReload(const PolicyFile& file, absl::string_view input, bool is_policy) {
  file.Write(R"({"rules": [{"identity": "before", "tenant": "a", "role": "member"}]})");
  COHORT_ASSIGN_OR_RETURN(const std::unique_ptr<AccessPolicy> policy,
                          AccessPolicy::Load(file.path()));
  const int64_t version = policy->Version(Instant());
  file.Write(input);
  const bool is_taken = policy->Version(Instant() + absl::Seconds(1)) != version;
  if (is_taken != is_policy) return Violation("a server and its start disagree about the file");
  if (!is_taken && policy->RightsOf({"before"}).RoleIn("a") != Role::kMember) {
    return Violation("a file that was refused has changed rights");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPolicy(absl::string_view input, bool* accepted) {
  // A line for each file that is refused would hide the failure.
  static const absl::Status quiet = InitLogging({"off"});
  if (!quiet.ok()) return quiet;
  static const auto* const file = new PolicyFile;
  file->Write(input);
  const absl::StatusOr<std::unique_ptr<AccessPolicy>> policy = AccessPolicy::Load(file->path());
  if (accepted != nullptr) *accepted = policy.ok();
  COHORT_RETURN_IF_ERROR(CheckReload(*file, input, policy.ok()));
  if (!policy.ok()) {
    const std::string start = absl::StrCat("access policy ", file->path(), ": ");
    if (policy.status().code() != absl::StatusCode::kInvalidArgument ||
        !absl::StartsWith(policy.status().message(), start) ||
        policy.status().message().size() == start.size()) {
      return Violation(absl::CHexEscape(policy.status().ToString()));
    }
    return absl::OkStatus();
  }
  const json whole = json::parse(input, nullptr, /*allow_exceptions=*/false);
  if (whole.is_discarded()) return Violation("a file that is not JSON is a policy");
  const json& rules = whole["rules"];
  std::vector<std::string> names = {kStranger};
  for (const json& rule : rules) {
    const auto identity = rule["identity"].get<std::string>();
    names.push_back(identity);
    names.push_back(identity + "x");
    names.push_back(identity.substr(0, identity.size() - 1));
  }
  // Each name is looked at in each tenant.
  if (names.size() > 60) names.resize(60);
  for (const std::string& name : names) {
    COHORT_RETURN_IF_ERROR(CheckRights(**policy, rules, name));
  }
  const auto tokens = whole.find("tokens");
  return CheckTokens(**policy, tokens == whole.end() ? json::array() : *tokens);
}

std::map<std::string, std::string> SamplePolicies() {
  const std::string rule = R"({"identity": "spiffe://a/*", "tenant": "a", "role": "member"})";
  const std::string hash = absl::BytesToHexString(HashToken("token"));
  const auto policy = [](const std::string& rules, const std::string& tokens) {
    return absl::StrCat(R"({"rules": [)", rules, R"(], "tokens": [)", tokens, "]}");
  };
  const auto token = [](const std::string& name, const std::string& of) {
    return absl::StrCat(R"({"name": ")", name, R"(", "sha256": ")", of, R"("})");
  };
  // Deeper than a parser or a copy that calls itself for each level has stack for.
  const std::string deep = std::string(1 << 17, '[') + std::string(1 << 17, ']');
  return {
      {"empty", ""},
      {"no_rules", R"({"rules": []})"},
      {"one_rule", policy(rule, "")},
      {"all_tenants", policy(R"({"identity": "uid:0", "tenant": "*", "role": "operator"})", "")},
      {"each_client", policy(R"({"identity": "*", "tenant": "a", "role": "observer"})", "")},
      {"a_token",
       policy(R"({"identity": "token:ci", "tenant": "a", "role": "member"})", token("ci", hash))},
      {"a_token_twice", policy("", token("ci", hash) + "," + token("cd", hash))},
      {"a_short_hash", policy("", token("ci", hash.substr(2)))},
      {"rules_twice", R"({"rules": [], "rules": [)" + rule + "]}"},
      {"a_role_none", policy(R"({"identity": "a", "tenant": "a", "role": "none"})", "")},
      {"a_star_inside", policy(R"({"identity": "a*b", "tenant": "a", "role": "member"})", "")},
      {"a_zero_byte", policy(R"({"identity": "a\u0000b", "tenant": "a", "role": "member"})", "")},
      {"not_utf8", policy("{\"identity\": \"\xff\", \"tenant\": \"a\", \"role\": \"member\"}", "")},
      {"a_half", policy(rule, "").substr(0, 40)},
      {"deep", deep},
      {"deep_rules", absl::StrCat(R"({"rules": )", deep, "}")},
      {"deep_tokens", absl::StrCat(R"({"rules": [], "tokens": [)", deep, "]}")},
      {"a_long_field", absl::StrCat(R"({"rules": [], ")", std::string(1 << 20, 'x'), R"(": 1})")},
  };
}

}  // namespace cohort::fuzz
