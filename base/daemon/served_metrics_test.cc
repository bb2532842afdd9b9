#include "base/daemon/served_metrics.h"

#include <cstdio>
#include <fstream>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/access/access_policy.h"
#include "base/clock.h"
#include "base/daemon/metrics_access.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "prometheus/registry.h"

namespace cohort {
namespace {

using ::testing::HasSubstr;

TEST(ServedMetricsTest, AFileThatCannotBeUsedIsAMetric) {
  const std::string folder = ::testing::TempDir();
  const std::string path = folder + "/unusable_policy.json";
  const auto write = [](const std::string& to, const std::string& text) {
    std::ofstream(to + ".next") << text;
    ASSERT_EQ(rename((to + ".next").c_str(), to.c_str()), 0);
  };
  write(path, R"({"rules": [{"identity": "anonymous", "tenant": "a", "role": "observer"}]})");
  const testing::CertificateAuthority ca(folder);
  const TlsFiles files = ca.Sign("server", {"server", "DNS:localhost"});
  MetricsAccess access;
  access.policy = AccessPolicy::Load(path).value();
  access.certificates = TlsContext::Load(files, TlsSide::kServer).value();
  ServedMetrics metrics;
  ASSERT_TRUE(metrics.Serve("127.0.0.1:0", std::make_shared<prometheus::Registry>(), access).ok());
  const std::string usable = metrics.Collect();
  EXPECT_THAT(usable, HasSubstr("cohort_unusable_access_files{file=\"access_policy\"} 0"));
  EXPECT_THAT(usable, HasSubstr("cohort_unusable_access_files{file=\"keys_of_issuers\"} 0"));
  EXPECT_THAT(usable, HasSubstr("cohort_unusable_access_files{file=\"certificates\"} 0"));

  write(path, "{");
  write(files.certificate, "nonsense");
  // The old rules count until the daemon has looked, and afterwards, too.
  std::string unusable;
  for (const absl::Time end = absl::Now() + absl::Seconds(20);
       (!absl::StrContains(unusable, "access_policy\"} 1") ||
        !absl::StrContains(unusable, "certificates\"} 1")) &&
       absl::Now() < end;) {
    access.policy->Version(Clock::Steady().Now());  // as a call or a scrape does
    unusable = metrics.Collect();
  }
  EXPECT_THAT(unusable, HasSubstr("cohort_unusable_access_files{file=\"access_policy\"} 1"));
  EXPECT_THAT(unusable, HasSubstr("cohort_unusable_access_files{file=\"certificates\"} 1"));
}

}  // namespace
}  // namespace cohort
