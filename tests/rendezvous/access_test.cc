// Clients of a coordinator with an access policy, with certificates: tenants, stolen sessions,
// rights that end.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/tls/testing/certificates.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::client {
namespace {

using cohort::testing::CertificateAuthority;
using cohort::testing::CoordinatorProcess;
using cohort::testing::NewFolder;
using ::testing::HasSubstr;

// The parameter: whether calls go by framed RPC or by gRPC.
class AccessTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    WritePolicy({Rule("team-a/*", "a", "member"), Rule("team-b/*", "b", "member"),
                 Rule("watcher", "a", "observer"), Rule("oncall", "*", "operator")});
    const TlsFiles files = ca_.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    CoordinatorProcess::Options options;
    options.flags = {"--tls-certificate", files.certificate, "--tls-key",       files.key,
                     "--tls-client-ca",   files.ca,          "--access-policy", policy_};
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    const absl::Status started = coordinator_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  static std::string Rule(const std::string& name, const std::string& tenant,
                          const std::string& role) {
    return absl::StrCat(R"({"identity": "spiffe://test/)", name, R"(", "tenant": ")", tenant,
                        R"(", "role": ")", role, R"("})");
  }
  void WritePolicy(const std::vector<std::string>& rules) {
    std::ofstream(policy_ + ".next")
        << absl::StrCat(R"({"rules": [)", absl::StrJoin(rules, ",\n"), "]}");
    ASSERT_EQ(rename((policy_ + ".next").c_str(), policy_.c_str()), 0);
  }

  // Connections made from now on are of spiffe://test/NAME.
  void Become(const std::string& name) {
    const TlsFiles files =
        ca_.Sign(absl::StrReplaceAll(name, {{"/", "-"}}), {"client", "URI:spiffe://test/" + name});
    setenv("COHORT_TLS_CERTIFICATE", files.certificate.c_str(), 1);
    setenv("COHORT_TLS_KEY", files.key.c_str(), 1);
    setenv("COHORT_TLS_CA", files.ca.c_str(), 1);
  }
  ConnectionOptions Options(const std::string& tenant) {
    ConnectionOptions options;
    options.address = coordinator_->address();
    options.tenant = tenant;
    options.framed_rpc = GetParam();
    return options;
  }
  std::shared_ptr<Connection> ConnectAs(const std::string& name, const std::string& tenant = "") {
    Become(name);
    const auto connection = Connection::Create(Options(tenant));
    EXPECT_TRUE(connection.ok()) << connection.status();
    return *connection;
  }
  std::unique_ptr<StoreClient> Store(const std::string& name, const std::string& tenant = "") {
    return StoreClient::Create(ConnectAs(name, tenant), "");
  }
  absl::StatusOr<std::unique_ptr<ProcessGroup>> JoinAs(const std::string& name,
                                                       const std::string& member, int world_size) {
    Become(name);
    ProcessGroupOptions options;
    options.connection = Options("a");
    options.group = "g";
    options.member = member;
    options.world_size = world_size;
    options.join_timeout = options.timeout = kLong;
    return ProcessGroup::Create(options);
  }

  const std::string folder_ = NewFolder();
  const std::string policy_ = folder_ + "/policy.json";
  const CertificateAuthority ca_{folder_};
  std::unique_ptr<CoordinatorProcess> coordinator_;
};

INSTANTIATE_TEST_SUITE_P(Ways, AccessTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Frames" : "Grpc"; });

void ExpectDenied(const absl::Status& status, const std::string& why) {
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(why));
}

TEST_P(AccessTest, TenantsAreApart) {
  const auto a = Store("team-a/trainer");
  const auto b = Store("team-b/trainer");
  ASSERT_TRUE(a->Put("key", "of a").ok());
  ASSERT_TRUE(b->Put("key", "of b").ok());
  EXPECT_EQ((*a->Get({"key"})).values[0].value, "of a");
  EXPECT_EQ((*b->Get({"key"})).values[0].value, "of b");
  // The names of tenants give no rights.
  ExpectDenied(Store("team-b/trainer", "a")->Get({"key"}).status(),
               "Get needs the role observer in tenant a, and spiffe://test/team-b/trainer has no "
               "role there");
  ExpectDenied(Store("stranger", "a")->Get({"key"}).status(), "spiffe://test/stranger");
  const auto watcher = Store("watcher", "a");
  EXPECT_EQ((*watcher->Get({"key"})).values[0].value, "of a");
  ExpectDenied(watcher->Put("key", "x").status(), "has the role observer");
}

TEST_P(AccessTest, OperatorsAlone) {
  const auto member = AdminClient::Create(ConnectAs("team-a/trainer", "a"));
  const auto oncall = AdminClient::Create(ConnectAs("oncall", "a"));
  const auto group = JoinAs("team-a/trainer", "m0", 1);
  ASSERT_TRUE(group.ok()) << group.status();
  ExpectDenied(member->Evict("g", "m0", "because"), "Evict needs the role operator");
  ExpectDenied(member->Drain(true, false).status(), "needs the role operator in all tenants");
  ExpectDenied(member->Limits({}).status(), "needs the role operator in all tenants");
  ExpectDenied(member->CloseGroup("g", "because"), "needs the role operator in tenant a");
  EXPECT_TRUE((*group)->Barrier().ok());
  EXPECT_TRUE(oncall->Limits({}).ok());
  EXPECT_TRUE(oncall->Evict("g", "m0", "because").ok());
  EXPECT_FALSE((*group)->Barrier().ok());
}

TEST_P(AccessTest, AMemberIsOfTheIdentityThatJoined) {
  const auto group = JoinAs("team-a/trainer", "m0", 1);
  ASSERT_TRUE(group.ok()) << group.status();
  const auto thief = JoinAs("team-a/thief", "m0", 1);
  ExpectDenied(thief.status(),
               "member m0 of group g belongs to spiffe://test/team-a/trainer, "
               "not to spiffe://test/team-a/thief");
  EXPECT_TRUE((*group)->Barrier().ok());
  // A new process with the same identity takes the place of the old one.
  const auto successor = JoinAs("team-a/trainer", "m0", 1);
  ASSERT_TRUE(successor.ok()) << successor.status();
  EXPECT_TRUE((*successor)->Barrier().ok());
}

TEST_P(AccessTest, RightsEndWhenThePolicyChanges) {
  const auto store = Store("team-a/trainer");
  ASSERT_TRUE(store->Put("key", "value").ok());
  absl::Status watched;
  std::thread watch([&] {
    watched = Store("watcher")->Watch(
        "", 0, [](const KeyEvent&) { return true; }, kLong);
  });
  Become("team-a/trainer");
  WritePolicy({Rule("team-b/*", "b", "member")});
  EXPECT_TRUE(
      Eventually([&] { return absl::IsPermissionDenied(store->Put("key", "x").status()); }));
  WritePolicy({Rule("team-a/*", "a", "member")});
  EXPECT_TRUE(Eventually([&] { return store->Put("key", "x").ok(); }));
  watch.join();
  ExpectDenied(watched, "Watch needs the role observer");
}

}  // namespace
}  // namespace cohort::client
