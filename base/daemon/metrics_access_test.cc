#include "base/daemon/metrics_access.h"

#include <string>

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

}  // namespace
}  // namespace cohort
