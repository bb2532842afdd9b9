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

const testing::CertificateNames kServer = {"server", "DNS:localhost,IP:127.0.0.1"};
const testing::CertificateNames kClient = {"client", "URI:spiffe://test/client"};

class WorkerCertificatesTest : public testing::WorkerTest {
 protected:
  void SetUp() override {
    WorkerTest::SetUp();
    const TlsFiles files = ca_.Sign("server", kServer);
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

  const std::string folder_ = testing::NewFolder();
  const CertificateAuthority ca_{folder_};
};

TEST_F(WorkerCertificatesTest, ARefusedClientGetsNoSession) {
  const std::string address = AddressOf(0, Transport::kTcp);
  Show({"", "", ca_.path()});
  absl::Status status = Connected();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(address + " does not answer within 2s: "));

  const CertificateAuthority other(testing::NewFolder(), "other-ca");
  TlsFiles foreign = other.Sign("client", kClient);
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

  Show(ca_.Sign("client", kClient));
  EXPECT_TRUE(Connected().ok());
  const auto info = client::WorkerClient::Create(address, kTimeout)->Describe();
  EXPECT_TRUE(info.ok()) << info.status();
}

TEST_F(WorkerCertificatesTest, NewFilesCountWithoutARestart) {
  Show(ca_.Sign("client", kClient));
  ASSERT_TRUE(Connected().ok());
  const CertificateAuthority next(folder_);  // its file takes the place of the first one's
  next.Sign("server", kServer);
  Show(next.Sign("next-client", kClient));
  // The worker looks at its files once a second, when a client connects.
  EXPECT_TRUE(testing::Eventually([&] { return Connected().ok(); }));
  Show(ca_.Sign("old-client", kClient));
  EXPECT_EQ(Connected().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace cohort
