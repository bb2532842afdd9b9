// Clients with certificates: tenants, stolen sessions, rights that end, and a coordinator without a
// policy.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "base/tls/testing/certificates.h"
#include "client/rendezvous/admin_client.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/access_test_base.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::client {
namespace {

using cohort::testing::CoordinatorProcess;

INSTANTIATE_TEST_SUITE_P(Ways, AccessTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Frames" : "Grpc"; });

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
  // Its certificate is that of the environment, which one thread alone may change.
  const auto watcher = Store("watcher");
  Become("team-a/trainer");
  absl::Status watched;
  std::thread watch([&] {
    watched = watcher->Watch(
        "", 0, [](const KeyEvent&) { return true; }, kLong);
  });
  WritePolicy({Rule("team-b/*", "b", "member")});
  EXPECT_TRUE(
      Eventually([&] { return absl::IsPermissionDenied(store->Put("key", "x").status()); }));
  WritePolicy({Rule("team-a/*", "a", "member")});
  EXPECT_TRUE(Eventually([&] { return store->Put("key", "x").ok(); }));
  watch.join();
  ExpectDenied(watched, "Watch needs the role observer");
}

TEST_P(AccessTest, WaitsEndWithTheRights) {
  const auto team_a = Store("team-a/trainer");
  const auto oncall = Store("oncall", "a");
  absl::Status got;
  absl::Status popped;
  std::thread get([&] { got = team_a->Get({"secret"}, kLong).status(); });
  std::thread pop([&] { popped = team_a->QueuePop("queue", kLong).status(); });
  const auto admin = AdminClient::Create(ConnectAs("oncall", "a"));
  ASSERT_TRUE(Eventually([&] { return admin->Stats()->waiter_count == 2; }));
  WritePolicy({Rule("oncall", "*", "operator")});
  get.join();
  pop.join();
  ExpectDenied(got, "Get needs the role observer in tenant a, and spiffe://test/team-a/trainer");
  ExpectDenied(popped, "QueuePop needs the role member");
  ASSERT_TRUE(oncall->QueuePush("queue", "item").ok());
  EXPECT_EQ(*oncall->QueueLen("queue"), 1);
}

// A coordinator that asks for certificates, and has no access policy.
class NoPolicyTest : public AccessTest {
 protected:
  void SetUp() override {
    const TlsFiles files = ca_.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    CoordinatorProcess::Options options;
    options.flags = {"--tls-certificate", files.certificate, "--tls-key",
                     files.key,           "--tls-client-ca", files.ca,
                     "--listen",          "unix:" + socket_};
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    const absl::Status started = coordinator_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  // A path of the test's folder would be too long.
  const std::string socket_ = absl::StrCat("/tmp/cohort-access-test-", getpid(), ".sock");
};

INSTANTIATE_TEST_SUITE_P(Ways, NoPolicyTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Frames" : "Grpc"; });

TEST_P(NoPolicyTest, ACertificateMakesAMemberAndNoOperator) {
  const auto group = JoinAs("trainer", "m0", 1);
  ASSERT_TRUE(group.ok()) << group.status();
  const auto other = AdminClient::Create(ConnectAs("other", "a"));
  ExpectDenied(other->Evict("g", "m0", "because"), "Evict needs the role operator");
  ExpectDenied(other->CloseGroup("g", "because"), "CloseGroup needs the role operator");
  ExpectDenied(other->Drain(true, false).status(), "Drain needs the role operator");
  ExpectDenied(JoinAs("other", "m0", 1).status(),
               "member m0 of group g belongs to spiffe://test/trainer, not to spiffe://test/other");
  EXPECT_TRUE((*group)->Barrier().ok());
  // There are no tokens, so one takes no rights away.
  const std::string token = folder_ + "/token";
  std::ofstream(token) << "of-somewhere-else\n";
  setenv("COHORT_TOKEN_FILE", token.c_str(), 1);
  EXPECT_TRUE(Store("trainer", "a")->Put("key", "value").ok());
  for (const char* const name :
       {"COHORT_TOKEN_FILE", "COHORT_TLS_CERTIFICATE", "COHORT_TLS_KEY", "COHORT_TLS_CA"}) {
    unsetenv(name);
  }
  // A plain connection from this machine may be that of a port forwarder.
  const auto plain = Connection::Create(Options("a"));
  ASSERT_TRUE(plain.ok()) << plain.status();
  const auto forwarded = AdminClient::Create(*plain);
  ExpectDenied(forwarded->Drain(true, false).status(), "and anonymous has no role there");
  ExpectDenied(forwarded->ListGroups().status(), "and anonymous has no role there");
  // The own user.
  ConnectionOptions options = Options("a");
  options.address = "unix:" + socket_;
  const auto connection = Connection::Create(options);
  ASSERT_TRUE(connection.ok()) << connection.status();
  EXPECT_TRUE(AdminClient::Create(*connection)->Evict("g", "m0", "because").ok());
  EXPECT_FALSE((*group)->Barrier().ok());
}

}  // namespace
}  // namespace cohort::client
