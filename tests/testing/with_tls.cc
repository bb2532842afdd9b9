// Linked into a test, it makes all of its coordinators and clients talk by mutual TLS.
#include <cstdlib>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/tls/testing/certificates.h"
#include "gtest/gtest.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::testing {
namespace {

class WithTls final : public ::testing::Environment {
  void SetUp() override {
    const CertificateAuthority ca(NewFolder());
    const TlsFiles server = ca.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    const TlsFiles client = ca.Sign(
        "client", {"client", "URI:spiffe://test/client,IP:127.0.0.1"});  // a queue's server, too
    // Without a policy, a certificate would not make an operator.
    const std::string policy = NewFolder() + "/policy.json";
    std::ofstream(policy) << R"({"rules": [{"identity": "*", "tenant": "*", "role": "operator"}]})";
    setenv(kCoordinatorFlagsVariable,
           absl::StrCat("--tls-certificate ", server.certificate, " --tls-key ", server.key,
                        " --tls-client-ca ", server.ca, " --access-policy ", policy)
               .c_str(),
           1);
    setenv("COHORT_TLS_CERTIFICATE", client.certificate.c_str(), 1);
    setenv("COHORT_TLS_KEY", client.key.c_str(), 1);
    setenv("COHORT_TLS_CA", client.ca.c_str(), 1);
  }
};

[[maybe_unused]] const auto* const kWithTls = ::testing::AddGlobalTestEnvironment(new WithTls);

}  // namespace
}  // namespace cohort::testing
