#include "base/rpc/rank_tls.h"

#include <cstdlib>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::StartsWith;

TEST(RankTlsTest, TheEnvironmentDecides) {
  struct Case {
    const char* wanted;
    const char* certificate;
    const char* ca;
    TlsState state;
  };
  for (const Case& each :
       {Case{"", "a.crt", "ca.crt", TlsState::kOn}, Case{"on", "a.crt", "ca.crt", TlsState::kOn},
        Case{"off", "a.crt", "ca.crt", TlsState::kOff}, Case{"", "", "ca.crt", TlsState::kCaAlone},
        Case{"", "", "", TlsState::kNoCertificate}, Case{"", "a.crt", "", TlsState::kNoCa}}) {
    setenv("COHORT_RANK_TLS", each.wanted, 1);
    setenv("COHORT_TLS_CERTIFICATE", each.certificate, 1);
    setenv("COHORT_TLS_CA", each.ca, 1);
    const absl::StatusOr<RankTls> tls = RankTlsOfEnvironment();
    ASSERT_TRUE(tls.ok()) << tls.status();
    EXPECT_EQ(tls->state, each.state) << each.wanted;
  }
  setenv("COHORT_RANK_TLS", "on", 1);
  EXPECT_EQ(RankTlsOfEnvironment().status().message(),
            "COHORT_RANK_TLS is on, and this process has no CA certificates (COHORT_TLS_CA)");
  setenv("COHORT_RANK_TLS", "maybe", 1);
  EXPECT_THAT(std::string(RankTlsOfEnvironment().status().message()),
              StartsWith("COHORT_RANK_TLS is \"maybe\", expected on or off"));
}

}  // namespace
}  // namespace cohort
