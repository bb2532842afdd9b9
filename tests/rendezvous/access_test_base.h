// A coordinator with an access policy and certificates, and clients with certificates of any name.
#ifndef COHORT_TESTS_RENDEZVOUS_ACCESS_TEST_BASE_H_
#define COHORT_TESTS_RENDEZVOUS_ACCESS_TEST_BASE_H_

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "base/tls/testing/certificates.h"
#include "client/rendezvous/process_group/process_group.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::client {

// The parameter: whether calls go by framed RPC or by gRPC.
class AccessTest : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    WritePolicy({Rule("team-a/*", "a", "member"), Rule("team-b/*", "b", "member"),
                 Rule("watcher", "a", "observer"), Rule("oncall", "*", "operator")});
    const TlsFiles files = ca_.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    cohort::testing::CoordinatorProcess::Options options;
    options.flags = {"--tls-certificate", files.certificate, "--tls-key",       files.key,
                     "--tls-client-ca",   files.ca,          "--access-policy", policy_};
    coordinator_ = std::make_unique<cohort::testing::CoordinatorProcess>(options);
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

  const std::string folder_ = cohort::testing::NewFolder();
  const std::string policy_ = folder_ + "/policy.json";
  const cohort::testing::CertificateAuthority ca_{folder_};
  std::unique_ptr<cohort::testing::CoordinatorProcess> coordinator_;
};

inline void ExpectDenied(const absl::Status& status, const std::string& why) {
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(why));
}

}  // namespace cohort::client

#endif  // COHORT_TESTS_RENDEZVOUS_ACCESS_TEST_BASE_H_
