#include "base/access/access_policy.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"
#include "base/access/peer_access.h"
#include "base/access/peer_names.h"
#include "base/access/token_hash.h"
#include "base/testing/user_namespace.h"
#include "base/threads/thread_time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class AccessPolicyTest : public ::testing::Test {
 protected:
  // The new file takes the place of the old one at once.
  void Write(const std::string& text) {
    const std::string next = path_ + ".next";
    std::ofstream(next) << text;
    ASSERT_EQ(rename(next.c_str(), path_.c_str()), 0);
  }
  std::string Error(const std::string& text) {
    Write(text);
    const absl::Status status = AccessPolicy::Load(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  std::shared_ptr<AccessPolicy> Load() { return AccessPolicy::Load(path_).value(); }

  const std::string path_ = absl::StrCat(::testing::TempDir(), "/policy.json");
  Instant now_ = absl::FromUnixSeconds(100);
};

struct PolicyRule {
  std::string identity, tenant;
  Role role = Role::kNone;
};

std::string FileOf(const std::vector<PolicyRule>& rules) {
  const auto write = [](std::string* out, const PolicyRule& rule) {
    absl::StrAppend(out, R"({"identity": ")", rule.identity, R"(", "tenant": ")", rule.tenant,
                    R"(", "role": ")", RoleName(rule.role), R"("})");
  };
  return absl::StrCat(R"({"rules": [)", absl::StrJoin(rules, ",\n", write), "]}");
}

constexpr char kTwoTeams[] = R"({"rules": [
  {"identity": "spiffe://prod/ns/a/*", "tenant": "a", "role": "member"},
  {"identity": "spiffe://prod/ns/b/*", "tenant": "b", "role": "member"},
  {"identity": "spiffe://prod/ns/b/sa/reader", "tenant": "a", "role": "observer"},
  {"identity": "uid:0", "tenant": "*", "role": "operator"}
]})";

TEST_F(AccessPolicyTest, RulesThatMatchAddUp) {
  Write(kTwoTeams);
  const auto policy = Load();
  const Rights trainer = policy->RightsOf({"spiffe://prod/ns/a/sa/trainer"});
  EXPECT_EQ(trainer.RoleIn("a"), Role::kMember);
  EXPECT_EQ(trainer.RoleIn("b"), Role::kNone);
  EXPECT_EQ(trainer.RoleIn(kAllTenants), Role::kNone);
  EXPECT_EQ(trainer.HighestRole(), Role::kMember);
  EXPECT_EQ(trainer.OwnTenant(), "a");

  const Rights reader = policy->RightsOf({"spiffe://prod/ns/b/sa/reader"});
  EXPECT_EQ(reader.RoleIn("a"), Role::kObserver);
  EXPECT_EQ(reader.RoleIn("b"), Role::kMember);
  EXPECT_EQ(reader.OwnTenant(), "b");

  const Rights root = policy->RightsOf({"uid:0"});
  EXPECT_EQ(root.RoleIn("a"), Role::kOperator);
  EXPECT_EQ(root.RoleIn(kAllTenants), Role::kOperator);
  EXPECT_EQ(root.OwnTenant(), "");

  // Names that look alike.
  for (const char* const name : {"spiffe://prod/ns/a", "spiffe://prod/ns/ab", "uid:00", "uid:", "",
                                 "xspiffe://prod/ns/a/b", "SPIFFE://prod/ns/a/b"}) {
    EXPECT_EQ(policy->RightsOf({name}).HighestRole(), Role::kNone) << name;
  }
  // Any of the names of a certificate counts.
  EXPECT_EQ(policy->RightsOf({"dns:x", "spiffe://prod/ns/b/x"}).RoleIn("b"), Role::kMember);
}

// Any of the names, against all rules in their order.
std::vector<std::pair<std::string, Role>> ScanOf(const std::vector<PolicyRule>& rules,
                                                 const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, Role>> grants;
  for (const PolicyRule& rule : rules) {
    absl::string_view identity = rule.identity;
    const bool is_prefix = absl::ConsumeSuffix(&identity, "*");
    const bool matches = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
      return is_prefix ? absl::StartsWith(name, identity) : name == identity;
    });
    if (matches) grants.emplace_back(rule.tenant, rule.role);
  }
  return grants;
}

TEST_F(AccessPolicyTest, RightsAreThoseOfAScanOfAllRules) {
  const unsigned seed = std::random_device()();
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  std::mt19937 random(seed);
  // So few texts that many are equal, or begin with another one.
  const auto text = [&random] {
    std::string letters(random() % 5, 'a');
    for (char& letter : letters) letter = "ab/"[random() % 3];
    return letters;
  };
  for (int attempt = 0; attempt < 200; ++attempt) {
    std::vector<PolicyRule> rules(random() % 40);
    for (size_t i = 0; i < rules.size(); ++i) {
      rules[i].identity = text();
      if (rules[i].identity.empty() || random() % 2 == 0) rules[i].identity += "*";
      rules[i].tenant = random() % 8 == 0 ? "*" : absl::StrCat("t", i);
      rules[i].role = static_cast<Role>(1 + random() % 3);
    }
    Write(FileOf(rules));
    const auto policy = Load();
    for (int client = 0; client < 50; ++client) {
      std::vector<std::string> names(1 + random() % 3);
      for (std::string& name : names) name = text() + (random() % 8 == 0 ? "*" : "");
      const Rights rights = policy->RightsOf(names);
      std::vector<std::pair<std::string, Role>> grants;
      for (const Rights::Grant& grant : rights.grants) {
        grants.emplace_back(grant.tenant, grant.role);
      }
      EXPECT_EQ(*rights.identity, names.front());
      ASSERT_EQ(grants, ScanOf(rules, names))
          << absl::StrJoin(names, ", ") << " by " << FileOf(rules);
    }
  }
}

TEST_F(AccessPolicyTest, TimeDoesNotGrowWithTheRulesOfOthers) {
  constexpr int kFew = 250;
  const auto time = [&](int count) {
    std::vector<PolicyRule> rules;
    for (int i = 0; i < count; ++i) {
      rules.push_back(
          {absl::StrCat("spiffe://prod/ns/", i, i % 2 == 0 ? "/*" : ""), "a", Role::kMember});
    }
    Write(FileOf(rules));
    const auto policy = Load();
    absl::Duration least = absl::InfiniteDuration();
    for (int attempt = 0; attempt < 3; ++attempt) {
      const absl::Duration begin = ThreadTime();
      for (int i = 0; i < 1000; ++i) {
        const int client = i % kFew;
        const std::string name =
            absl::StrCat("spiffe://prod/ns/", client, client % 2 == 0 ? "/sa" : "");
        EXPECT_EQ(policy->RightsOf({name}).grants.size(), 1u);
      }
      least = std::min(least, ThreadTime() - begin);
    }
    return least;
  };
  const absl::Duration few = time(kFew);
  const absl::Duration many = time(16 * kFew);
  EXPECT_LT(absl::FDivDuration(many, few), 6) << few << " and " << many;
}

TEST(AccessPolicyWithoutFileTest, CertificatesMakeMembersAndTheOwnUserOperators) {
  const auto policy = AccessPolicy::WithoutFile();
  for (const char* const name : {"spiffe://prod/trainer", "dns:trainer", "cn:trainer"}) {
    EXPECT_EQ(policy->RightsOf({name}).RoleIn("any"), Role::kMember) << name;
    EXPECT_EQ(policy->RightsOf({name}).RoleIn(kAllTenants), Role::kMember) << name;
  }
  EXPECT_EQ(policy->RightsOf({absl::StrCat("uid:", geteuid())}).RoleIn(kAllTenants),
            Role::kOperator);
  // A plain client on loopback may be a port forwarder.
  for (const std::string& name : {absl::StrCat("uid:", geteuid() + 1), std::string("anonymous"),
                                  std::string("anonymous-tls")}) {
    EXPECT_EQ(policy->RightsOf({name}).HighestRole(), Role::kNone) << name;
  }
  EXPECT_EQ(policy->Version(absl::FromUnixSeconds(100)),
            policy->Version(absl::FromUnixSeconds(200)));
}

// A rule and the daemon itself have the number that each user outside of the namespace has.
TEST_F(AccessPolicyTest, TheOverflowUserOfANamespaceHasNoRightsAtAUnixSocket) {
  if (!testing::HasUserNamespaces()) GTEST_SKIP() << "needs user namespaces";
  Write(R"({"rules": [{"identity": "uid:65534", "tenant": "*", "role": "operator"}]})");
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        int pair[2];
        const bool ready = socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 &&
                           testing::EnterUserNamespace(testing::kOverflowUser);
        const std::vector<std::string> names = NamesOfPeer(pair[0], nullptr);
        const auto has_none = [&names](const AccessPolicy& policy) {
          return policy.RightsOf(names).HighestRole() == Role::kNone;
        };
        _exit(ready && has_none(*AccessPolicy::WithoutFile()) && has_none(*Load()) ? 0 : 1);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(AccessPolicyTest, WrongFilesAreNamedWithTheReason) {
  EXPECT_THAT(std::string(AccessPolicy::Load("/none.json").status().message()),
              HasSubstr("/none.json: No such file"));
  EXPECT_THAT(Error("{"), HasSubstr("policy.json: is not JSON"));
  EXPECT_THAT(Error("[]"), HasSubstr("is not an object"));
  EXPECT_THAT(Error(R"({"rules": [], "more": 1})"), HasSubstr("has no field more"));
  EXPECT_THAT(Error("{}"), HasSubstr("must have the list \"rules\""));
  EXPECT_THAT(Error(R"({"rules": [], "tokens": {}})"), HasSubstr("the list \"tokens\""));
  EXPECT_THAT(Error(R"({"rules": [1]})"), HasSubstr("rule 1: is not an object"));
  const auto rule = [&](const std::string& fields) {
    return Error(absl::StrCat(
        R"({"rules": [{"identity": "uid:0", "tenant": "a", "role": "member"}, {)", fields, "}]}"));
  };
  EXPECT_THAT(rule(R"("tenant": "a", "role": "member")"), HasSubstr("rule 2: identity"));
  EXPECT_THAT(rule(R"("identity": "a*b", "tenant": "a", "role": "member")"), HasSubstr("identity"));
  EXPECT_THAT(rule(R"("identity": 5, "tenant": "a", "role": "member")"), HasSubstr("identity"));
  EXPECT_THAT(rule(R"("identity": "a", "tenant": "", "role": "member")"), HasSubstr("tenant"));
  EXPECT_THAT(rule(R"("identity": "a", "tenant": "a*", "role": "member")"), HasSubstr("tenant"));
  EXPECT_THAT(rule(R"("identity": "a", "tenant": "a", "role": "root")"), HasSubstr("role must be"));
  EXPECT_THAT(rule(R"("identity": "a", "tenant": "a", "role": "none")"), HasSubstr("role must be"));
  EXPECT_THAT(rule(R"("identity": "a", "tenant": "a", "role": "member", "roles": [])"),
              HasSubstr("has no field roles"));
}

TEST_F(AccessPolicyTest, TheEmptyTokenHasNoRights) {
  // As `printf %s "$(cat missing)" | sha256sum` says.
  EXPECT_THAT(Error(R"({"rules": [], "tokens": [{"name": "a", "sha256":
                    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"}]})"),
              HasSubstr("token 1: sha256 is that of the empty token"));
}

TEST_F(AccessPolicyTest, DeeplyNestedListsAreRefused) {
  const std::string deep = std::string(1 << 17, '[') + std::string(1 << 17, ']');
  EXPECT_THAT(Error(deep), HasSubstr("has more than 16 levels"));
  EXPECT_THAT(Error(absl::StrCat(R"({"rules": )", deep, "}")), HasSubstr("more than 16 levels"));
  EXPECT_THAT(Error(absl::StrCat(R"({"rules": [], "issuers": )", deep, "}")),
              HasSubstr("more than 16 levels"));
  EXPECT_THAT(Error(R"({"rules": [], "rules": []})"), HasSubstr("has a key twice"));
}

TEST_F(AccessPolicyTest, WrongTokensAreNamedWithTheReason) {
  const std::string hash = absl::BytesToHexString(HashToken("a"));
  const auto token = [&](const std::string& fields) {
    return Error(absl::StrCat(R"({"rules": [], "tokens": [{"name": "a", "sha256": ")", hash,
                              R"("}, {)", fields, "}]}"));
  };
  const std::string other = absl::BytesToHexString(HashToken("b"));
  EXPECT_THAT(token(absl::StrCat(R"("sha256": ")", other, "\"")), HasSubstr("token 2: name"));
  EXPECT_THAT(token(absl::StrCat(R"("name": "*", "sha256": ")", other, "\"")),
              HasSubstr("token 2: name"));
  EXPECT_THAT(token(R"("name": "b", "sha256": "ab")"), HasSubstr("token 2: sha256"));
  EXPECT_THAT(token(absl::StrCat(R"("name": "b", "sha256": ")", std::string(64, 'g'), "\"")),
              HasSubstr("token 2: sha256"));
  EXPECT_THAT(token(absl::StrCat(R"("name": "b", "sha256": ")", hash, "\"")),
              HasSubstr("token 2: is there twice"));
  EXPECT_THAT(token(R"("name": "b", "token": "b")"), HasSubstr("token 2: has no field token"));
}

TEST_F(AccessPolicyTest, ATokenCountsInPlaceOfNames) {
  const auto policy_with = [](const std::string& token) {
    return absl::StrCat(R"({"rules": [
      {"identity": "uid:0", "tenant": "*", "role": "operator"},
      {"identity": "*", "tenant": "all", "role": "observer"},
      {"identity": "token:ci", "tenant": "a", "role": "member"}],
      "tokens": [{"name": "ci", "sha256": ")",
                        absl::BytesToHexString(HashToken(token)), R"("}]})");
  };
  Write(policy_with("old"));
  PeerAccess peer(Load(), {"uid:0"});
  const auto known = peer.WithToken("old");
  EXPECT_EQ(*known->Current(now_)->identity, "token:ci");
  EXPECT_EQ(known->Current(now_)->RoleIn("a"), Role::kMember);
  EXPECT_EQ(known->Current(now_)->RoleIn("all"), Role::kObserver);
  EXPECT_EQ(known->Current(now_)->RoleIn("b"), Role::kNone);
  // An unknown token gives no rights, those of "*" neither.
  for (const char* const token : {"", "new", "old ", "ci"}) {
    const auto unknown = peer.WithToken(token);
    EXPECT_EQ(unknown->Current(now_)->HighestRole(), Role::kNone) << token;
    EXPECT_EQ(*unknown->Current(now_)->identity, "a client with an unknown token");
  }
  // A token that the policy loses or gets counts for open connections, too.
  const auto later = peer.WithToken("new");
  Write(policy_with("new"));
  now_ += absl::Seconds(1);
  EXPECT_EQ(known->Current(now_)->HighestRole(), Role::kNone);
  EXPECT_EQ(later->Current(now_)->RoleIn("a"), Role::kMember);
}

// A server that keeps the names of a client asks again. The rule may outlive the token.
TEST_F(AccessPolicyTest, ATokenThatThePolicyLosesKeepsNoRights) {
  const std::string rules =
      R"({"rules": [{"identity": "token:ci", "tenant": "a", "role": "member"}], "tokens": [)";
  Write(absl::StrCat(rules, R"({"name": "ci", "sha256": ")",
                     absl::BytesToHexString(HashToken("a token")), R"("}]})"));
  EXPECT_EQ(Load()->RemainingRightsOf({"token:ci"}).RoleIn("a"), Role::kMember);
  Write(rules + "]}");
  EXPECT_EQ(Load()->RemainingRightsOf({"token:ci"}).HighestRole(), Role::kNone);
}

TEST_F(AccessPolicyTest, ANewFileCountsFromTheNextLookOn) {
  Write(kTwoTeams);
  const auto policy = Load();
  PeerAccess peer(policy, {"spiffe://prod/ns/a/x"});
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kMember);
  Write(R"({"rules": []})");
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kMember);  // a look a second
  now_ += absl::Seconds(1);
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kNone);
  Write("{ not JSON");
  now_ += absl::Seconds(1);
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kNone);
  ASSERT_EQ(unlink(path_.c_str()), 0);
  now_ += absl::Seconds(1);
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kNone);
  Write(kTwoTeams);
  now_ += absl::Seconds(1);
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kMember);
}

TEST_F(AccessPolicyTest, APipeOrADeviceInItsPlaceStopsNoReader) {
  Write(kTwoTeams);
  const auto policy = Load();
  const int64_t version = policy->Version(now_);
  for (const char* target : {"", "/dev/zero"}) {
    unlink(path_.c_str());
    ASSERT_EQ(*target == '\0' ? mkfifo(path_.c_str(), 0600) : symlink(target, path_.c_str()), 0);
    now_ += absl::Seconds(2);
    EXPECT_EQ(policy->Version(now_), version);
    EXPECT_EQ(policy->RightsOf({"uid:0"}).HighestRole(), Role::kOperator);
  }
  unlink(path_.c_str());
}

TEST_F(AccessPolicyTest, AFileThatCouldNotBeReadIsReadAtTheNextLook) {
  Write(kTwoTeams);
  PeerAccess peer(Load(), {"spiffe://prod/ns/a/x"});
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kMember);
  Write(R"({"rules": []})");
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit none = before;
  none.rlim_cur = 0;  // no file can be opened
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  now_ += absl::Seconds(1);
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kMember);
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
  now_ += absl::Seconds(1);
  EXPECT_EQ(peer.Current(now_)->RoleIn("a"), Role::kNone);
}

}  // namespace
}  // namespace cohort
