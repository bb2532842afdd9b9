// Calls of a server, such as a worker, for a client of its own.
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/access/peer_access.h"
#include "base/access/token_hash.h"
#include "base/clock.h"
#include "base/rpc/client_names.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

class PeerClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    Write("");
    policy_ = *AccessPolicy::Load(path_);
    worker_ = Peer({"spiffe://w"});
  }
  void Write(const std::string& further_rules) const {
    const std::string next = path_ + ".next";
    std::ofstream(next) << R"({"rules": [
        {"identity": "spiffe://w", "tenant": "*", "role": "member"},
        {"identity": "spiffe://boss", "tenant": "*", "role": "operator"},
        {"identity": "dns:reader", "tenant": "b", "role": "observer"})"
                        << further_rules << R"(],
        "tokens": [{"name": "ci", "sha256": ")"
                        << absl::BytesToHexString(HashToken("secret")) << R"("}]})";
    ASSERT_EQ(rename(next.c_str(), path_.c_str()), 0);
  }
  std::shared_ptr<PeerAccess> Peer(std::vector<std::string> names) const {
    return std::make_shared<PeerAccess>(policy_, std::move(names));
  }
  Role RoleOf(PeerAccess& access, const std::string& tenant) {
    return access.Current(now_)->RoleIn(tenant);
  }
  std::string IdentityOf(PeerAccess& access) { return *access.Current(now_)->identity; }
  static std::string Names(const std::vector<std::string>& names) {
    return EncodeClientNames(names);
  }

  const std::string path_ = ::testing::TempDir() + "/policy.json";
  Instant now_ = absl::FromUnixSeconds(7);
  std::shared_ptr<AccessPolicy> policy_;
  std::shared_ptr<PeerAccess> worker_;
};

constexpr char kRuleOfA[] = R"(, {"identity": "spiffe://a", "tenant": "a", "role": "member"})";

TEST_F(PeerClientTest, HasTheRightsThatBothHave) {
  Write(kRuleOfA);
  now_ += absl::Seconds(1);
  const auto a = worker_->ForClient(Names({"spiffe://a"}));
  EXPECT_EQ(IdentityOf(*a), "spiffe://a through spiffe://w");
  EXPECT_EQ(RoleOf(*a, "a"), Role::kMember);
  EXPECT_EQ(RoleOf(*a, "b"), Role::kNone);
  EXPECT_EQ(a->Current(now_)->OwnTenant(), "a");
  // A name gives no right that the worker does not have.
  EXPECT_EQ(RoleOf(*worker_->ForClient(Names({"spiffe://boss"})), "a"), Role::kMember);
  const auto reader = Peer({"dns:reader"})->ForClient(Names({"spiffe://boss"}));
  EXPECT_EQ(RoleOf(*reader, "b"), Role::kObserver);
  EXPECT_EQ(RoleOf(*reader, "a"), Role::kNone);
  EXPECT_EQ(reader->Current(now_)->OwnTenant(), "b");
  // Each of the names counts.
  EXPECT_EQ(RoleOf(*worker_->ForClient(Names({"spiffe://unknown", "spiffe://a"})), "a"),
            Role::kMember);
  EXPECT_EQ(worker_->ForClient(Names({"spiffe://unknown"}))->Current(now_)->HighestRole(),
            Role::kNone);
}

TEST_F(PeerClientTest, TheRightsOfBothEndWithTheirRules) {
  Write(kRuleOfA);
  now_ += absl::Seconds(1);
  const auto a = worker_->ForClient(Names({"spiffe://a"}));
  EXPECT_EQ(RoleOf(*a, "a"), Role::kMember);
  Write("");
  now_ += absl::Seconds(1);
  EXPECT_EQ(RoleOf(*a, "a"), Role::kNone);
  EXPECT_EQ(IdentityOf(*a), "spiffe://a through spiffe://w");
}

TEST_F(PeerClientTest, ACallerWithoutRightsIsItself) {
  const auto stranger = Peer({"anonymous"});
  const auto named = stranger->ForClient(Names({"spiffe://boss"}));
  EXPECT_EQ(IdentityOf(*named), "anonymous");
  EXPECT_EQ(named->Current(now_)->HighestRole(), Role::kNone);
}

TEST_F(PeerClientTest, TheCallerPaysForRefusedCalls) {
  EXPECT_EQ(worker_->ForClient(Names({"spiffe://unknown"}))->Current(now_)->payer(), "spiffe://w");
  EXPECT_EQ(worker_->Current(now_)->payer(), "spiffe://w");
}

TEST_F(PeerClientTest, ANameOfOneMachineChangesTheIdentityAlone) {
  const auto local = worker_->ForClient(Names({"uid:1000"}));
  EXPECT_EQ(IdentityOf(*local), "uid:1000 through spiffe://w");
  EXPECT_EQ(RoleOf(*local, "a"), Role::kMember);
}

TEST_F(PeerClientTest, AWrongListOfNamesHasNoRights) {
  for (const std::string& wrong : {std::string("a"), std::string(), std::string(1, '\0')}) {
    const auto access = worker_->ForClient(wrong);
    EXPECT_EQ(access->Current(now_)->HighestRole(), Role::kNone);
    EXPECT_EQ(IdentityOf(*access), "a client without a name through spiffe://w");
  }
}

TEST_F(PeerClientTest, TheWorkerMayShowAToken) {
  Write(std::string(kRuleOfA) + R"(, {"identity": "token:ci", "tenant": "*", "role": "member"})");
  now_ += absl::Seconds(1);
  const auto by_token = worker_->WithToken("secret")->ForClient(Names({"spiffe://a"}));
  EXPECT_EQ(IdentityOf(*by_token), "spiffe://a through token:ci");
  EXPECT_EQ(RoleOf(*by_token, "a"), Role::kMember);
  // In the other order, too, as a new token of a connection comes.
  EXPECT_EQ(IdentityOf(*worker_->ForClient(Names({"spiffe://a"}))->WithToken("secret")),
            "spiffe://a through token:ci");
}

TEST_F(PeerClientTest, NamesAreThoseOfCertificatesOrTheToken) {
  EXPECT_THAT(Peer({"spiffe://a", "dns:a"})->Names(now_),
              ::testing::ElementsAre("spiffe://a", "dns:a"));
  EXPECT_THAT(worker_->WithToken("secret")->Names(now_), ::testing::ElementsAre("token:ci"));
}

}  // namespace
}  // namespace cohort
