// A worker that needs certificates, and clients whose certificates it refuses.
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "client/collective/remote/remote_group.h"
#include "client/collective/remote/worker_client.h"
#include "gmock/gmock.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"
#include "tests/worker/worker_test_base.h"

namespace cohort {
namespace {

using testing::CertificateAuthority;
using ::testing::HasSubstr;
using testing::kTimeout;
using testing::Transport;

class WorkerCertificatesTest : public testing::WorkerTest {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    const TlsFiles files = ca_.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    StartWorker({"--tls-certificate", files.certificate, "--tls-key", files.key, "--tls-client-ca",
                 files.ca});
  }
  void TearDown() override {
    for (const char* const name : {"COHORT_TLS_CERTIFICATE", "COHORT_TLS_KEY", "COHORT_TLS_CA"}) {
      unsetenv(name);
    }
  }

  static void Show(const TlsFiles& files) {
    setenv("COHORT_TLS_CERTIFICATE", files.certificate.c_str(), 1);
    setenv("COHORT_TLS_KEY", files.key.c_str(), 1);
    setenv("COHORT_TLS_CA", files.ca.c_str(), 1);
  }
  absl::Status Connected() const {
    client::WorkerSessionOptions options;
    options.address = AddressOf(0, Transport::kTcp);
    options.connect_timeout = absl::Seconds(2);
    return client::WorkerSession::Connect(options).status();
  }

  const CertificateAuthority ca_{testing::NewFolder()};
};

TEST_F(WorkerCertificatesTest, ARefusedClientGetsNoSession) {
  const std::string address = AddressOf(0, Transport::kTcp);
  Show({"", "", ca_.path()});
  absl::Status status = Connected();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(address + " does not answer within 2s: "));

  const CertificateAuthority other(testing::NewFolder(), "other-ca");
  TlsFiles foreign = other.Sign("client", {"client", "URI:spiffe://test/client"});
  Show(foreign);  // it trusts its own CA alone
  status = Connected();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  foreign.ca = ca_.path();
  Show(foreign);
  EXPECT_EQ(Connected().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(client::WorkerClient::Create(address, kTimeout)->Describe().status().code(),
            absl::StatusCode::kUnavailable);

  Show({"/nonexistent", "/nonexistent", ca_.path()});
  EXPECT_EQ(Connected().code(), absl::StatusCode::kInvalidArgument);

  Show(ca_.Sign("client", {"client", "URI:spiffe://test/client"}));
  EXPECT_TRUE(Connected().ok());
  const auto info = client::WorkerClient::Create(address, kTimeout)->Describe();
  EXPECT_TRUE(info.ok()) << info.status();
}

}  // namespace
}  // namespace cohort
