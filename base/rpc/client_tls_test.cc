#include "base/rpc/client_tls.h"

#include <fstream>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(ClientTlsTest, EachTokenFileHasItsOwnToken) {
  const std::string folder = ::testing::TempDir();
  const testing::CertificateAuthority ca(folder);
  TlsFiles files;
  files.ca = ca.path();
  for (const std::string name : {"a", "b"}) {
    const std::string path = folder + "/" + name + ".token";
    std::ofstream(path) << "token-of-" << name;
    const absl::StatusOr<ClientTls> tls = ClientTlsFor("127.0.0.1:1", files, path);
    ASSERT_TRUE(tls.ok()) << tls.status();
    ASSERT_NE(tls->token, nullptr);
    EXPECT_EQ(tls->token->Current(Clock::Steady().Now()), "token-of-" + name);
  }
  const absl::StatusOr<ClientTls> without = ClientTlsFor("127.0.0.1:1", files);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->token, nullptr);
}

}  // namespace
}  // namespace cohort
