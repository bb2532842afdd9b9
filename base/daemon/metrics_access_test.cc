#include "base/daemon/metrics_access.h"

#include <fstream>
#include <memory>
#include <string>

#include "base/access/access_policy.h"
#include "base/daemon/flags.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(MetricsAccessTest, OtherMachinesNeedTls) {
  const testing::CertificateAuthority ca(::testing::TempDir());
  DaemonOptions options(7700);
  options.tls = ca.Sign("server", {"server", "DNS:localhost"});
  const auto has_tls = [&options](const std::string& address, bool insecure) {
    options.metrics_listen = address;
    options.insecure = insecure;
    const auto access = MetricsAccessOf(options, nullptr, nullptr);
    EXPECT_TRUE(access.ok()) << access.status();
    return access.ok() && access->tls != nullptr;
  };
  EXPECT_TRUE(has_tls("0.0.0.0:7701", false));
  EXPECT_TRUE(has_tls("[::]:7701", false));
  EXPECT_FALSE(has_tls("127.0.0.1:7701", false));
  EXPECT_FALSE(has_tls("[::1]:7701", false));
  EXPECT_TRUE(has_tls("0.0.0.0:7701", true));
  options.tls = TlsFiles();
  EXPECT_FALSE(has_tls("0.0.0.0:7701", true));
}

TEST(MetricsAccessTest, TheAccessPolicyCountsAtEachAddress) {
  const testing::CertificateAuthority ca(::testing::TempDir());
  DaemonOptions options(7700);
  options.access_policy = ::testing::TempDir() + "/policy.json";
  std::ofstream(options.access_policy) << R"({"rules": []})";
  const std::shared_ptr<AccessPolicy> policy = AccessPolicy::Load(options.access_policy).value();
  for (const bool tls : {false, true}) {
    if (tls) options.tls = ca.Sign("server", {"server", "DNS:localhost"});
    for (const char* const address : {"127.0.0.1:7701", "0.0.0.0:7701"}) {
      options.metrics_listen = address;
      const auto access = MetricsAccessOf(options, policy, nullptr);
      ASSERT_TRUE(access.ok()) << access.status();
      EXPECT_EQ(access->policy, policy) << address;
    }
  }
}

}  // namespace
}  // namespace cohort
