#include "worker/group/connections/secure_connections.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<PeerTls> Peers(const std::vector<TlsState>& states) {
  std::vector<PeerTls> peers;
  for (size_t rank = 0; rank < states.size(); ++rank) {
    peers.push_back({absl::StrCat("host-", rank), states[rank]});
  }
  return peers;
}

TEST(SecureConnectionsTest, AllRanksUseTlsOrNone) {
  EXPECT_TRUE(*UseTls("g", Peers({TlsState::kOn, TlsState::kOn})));
  EXPECT_FALSE(*UseTls("g", Peers({TlsState::kOff, TlsState::kNoCertificate})));
  const absl::Status status =
      UseTls("g", Peers({TlsState::kOn, TlsState::kOn, TlsState::kNoCertificate, TlsState::kNoCa}))
          .status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "ranks of group g differ in TLS between hosts: rank 2 on host-2 has no TLS certificate "
            "(COHORT_TLS_CERTIFICATE), rank 0 on host-0 uses TLS (without TLS: rank 2-3). Give all "
            "ranks COHORT_TLS_CA, COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY, or all "
            "COHORT_RANK_TLS=off");
}

TEST(SecureConnectionsTest, ARankThatUsesTlsElsewhereSendsNoPlainText) {
  const absl::Status status =
      UseTls("g", Peers({TlsState::kNoCertificate, TlsState::kCaAlone})).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "ranks of group g would use plain text between hosts, and rank 1 on host-1 has CA "
            "certificates (COHORT_TLS_CA) and no certificate of its own (COHORT_TLS_CERTIFICATE). "
            "Give all ranks COHORT_TLS_CA, COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY, or all "
            "COHORT_RANK_TLS=off");
}

TEST(SecureConnectionsTest, EachReasonIsNamed) {
  const auto reason = [](TlsState state) {
    return std::string(UseTls("g", Peers({state, TlsState::kOn})).status().message());
  };
  EXPECT_THAT(reason(TlsState::kOff), HasSubstr("rank 0 on host-0 has COHORT_RANK_TLS=off"));
  EXPECT_THAT(reason(TlsState::kNoCa), HasSubstr("rank 0 on host-0 has no CA certificates"));
  EXPECT_THAT(reason(TlsState::kUnknown), HasSubstr("rank 0 on host-0 has no TLS in this"));
  EXPECT_THAT(reason(static_cast<TlsState>(77)), HasSubstr("has no TLS in this release"));
}

TEST(SecureConnectionsTest, SocketsWithoutASecretStayPlain) {
  Connections connections;
  EXPECT_TRUE(SecureConnections(connections, {}, absl::InfinitePast()).ok());
}

}  // namespace
}  // namespace cohort::worker
