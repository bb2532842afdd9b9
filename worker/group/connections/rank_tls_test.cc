#include "worker/group/connections/rank_tls.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cohort/v1/rank_info.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<v1::RankInfo> Infos(const std::vector<v1::RankTls>& states) {
  std::vector<v1::RankInfo> infos;
  for (size_t rank = 0; rank < states.size(); ++rank) {
    infos.emplace_back().set_tls(states[rank]);
    infos.back().set_host_name(absl::StrCat("host-", rank));
  }
  return infos;
}

TEST(RankTlsTest, AllRanksUseTlsOrNone) {
  EXPECT_TRUE(*UseTls("g", Infos({v1::RANK_TLS_ON, v1::RANK_TLS_ON})));
  EXPECT_FALSE(*UseTls("g", Infos({v1::RANK_TLS_OFF, v1::RANK_TLS_NO_CERTIFICATE})));
  const absl::Status status = UseTls("g", Infos({v1::RANK_TLS_ON, v1::RANK_TLS_ON,
                                                 v1::RANK_TLS_NO_CERTIFICATE, v1::RANK_TLS_NO_CA}))
                                  .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "ranks of group g differ in TLS between hosts: rank 2 on host-2 has no TLS certificate "
            "(COHORT_TLS_CERTIFICATE), rank 0 on host-0 uses TLS (without TLS: rank 2-3). Give all "
            "ranks COHORT_TLS_CA, COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY, or all "
            "COHORT_RANK_TLS=off");
}

TEST(RankTlsTest, EachReasonIsNamed) {
  const auto reason = [](v1::RankTls state) {
    return std::string(UseTls("g", Infos({state, v1::RANK_TLS_ON})).status().message());
  };
  EXPECT_THAT(reason(v1::RANK_TLS_OFF), HasSubstr("rank 0 on host-0 has COHORT_RANK_TLS=off"));
  EXPECT_THAT(reason(v1::RANK_TLS_NO_CA), HasSubstr("rank 0 on host-0 has no CA certificates"));
  EXPECT_THAT(reason(v1::RANK_TLS_UNSPECIFIED), HasSubstr("rank 0 on host-0 has no TLS in this"));
  EXPECT_THAT(reason(static_cast<v1::RankTls>(77)), HasSubstr("has no TLS in this release"));
}

TEST(RankTlsTest, TheEnvironmentDecides) {
  struct Case {
    const char* wanted;
    const char* certificate;
    const char* ca;
    v1::RankTls state;
  };
  for (const Case& each : {Case{"", "a.crt", "ca.crt", v1::RANK_TLS_ON},
                           Case{"on", "a.crt", "ca.crt", v1::RANK_TLS_ON},
                           Case{"off", "a.crt", "ca.crt", v1::RANK_TLS_OFF},
                           Case{"", "", "ca.crt", v1::RANK_TLS_NO_CERTIFICATE},
                           Case{"", "a.crt", "", v1::RANK_TLS_NO_CA}}) {
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

TEST(RankTlsTest, SocketsWithoutASecretStayPlain) {
  Connections connections;
  EXPECT_TRUE(SecureConnections(connections, {}, absl::InfinitePast()).ok());
}

}  // namespace
}  // namespace cohort::worker
