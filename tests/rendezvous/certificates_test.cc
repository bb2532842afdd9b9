// The certificates of a coordinator and its clients: a refused one is named with the reason, and
// new ones take the place of old ones under load.
#include "base/tls/testing/certificates.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/unique_fd.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/rendezvous/rendezvous_test_base.h"
#include "tests/testing/coordinator_process.h"

namespace cohort::client {
namespace {

using cohort::testing::CertificateAuthority;
using cohort::testing::CertificateNames;
using cohort::testing::CoordinatorProcess;
using cohort::testing::NewFolder;
using ::testing::HasSubstr;

constexpr absl::Duration kShort = absl::Seconds(2);
const CertificateNames kServer{"server", "DNS:localhost,IP:127.0.0.1"};
const CertificateNames kClient{"client", "URI:spiffe://test/client"};

// The first address of this machine that is not a loopback one; empty: none.
std::string NetworkAddress() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  std::string found;
  for (const ifaddrs* one = all; one != nullptr && found.empty(); one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    const in_addr address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr)->sin_addr;
    if (ntohl(address.s_addr) >> 24 != 127) found = inet_ntoa(address);
  }
  freeifaddrs(all);
  return found;
}

void UseInThisProcess(const TlsFiles& files) {
  setenv("COHORT_TLS_CERTIFICATE", files.certificate.c_str(), 1);
  setenv("COHORT_TLS_KEY", files.key.c_str(), 1);
  setenv("COHORT_TLS_CA", files.ca.c_str(), 1);
}

// The parameter: whether calls go by framed RPC or by gRPC.
class CertificatesTest : public ::testing::TestWithParam<bool> {
 protected:
  void StartCoordinator(const TlsFiles& files, const std::string& listen = "",
                        const std::vector<std::string>& flags = {}) {
    CoordinatorProcess::Options options;
    options.flags = {"--tls-certificate", files.certificate, "--tls-key", files.key};
    if (!files.ca.empty()) options.flags.insert(options.flags.end(), {"--tls-client-ca", files.ca});
    if (!listen.empty()) options.flags.insert(options.flags.end(), {"--listen", listen});
    options.flags.insert(options.flags.end(), flags.begin(), flags.end());
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    const absl::Status started = coordinator_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }
  std::unique_ptr<StoreClient> Store(const std::string& address) {
    ConnectionOptions options;
    options.address = address;
    options.framed_rpc = GetParam();
    const auto connection = Connection::Create(options);
    EXPECT_TRUE(connection.ok()) << connection.status();
    return StoreClient::Create(*connection, "");
  }
  std::unique_ptr<StoreClient> Store() { return Store(coordinator_->address()); }
  // The error of a call by a new connection.
  std::string Error(const std::string& address) {
    const absl::Status status = Store(address)->Put("key", "value", {}, kShort).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    return std::string(status.message());
  }
  // Framed RPC knows why; gRPC says little.
  void ExpectError(const std::string& address, const std::string& why) {
    EXPECT_THAT(Error(address), HasSubstr(GetParam() ? why : "is away"));
  }

  const std::string folder_ = NewFolder();
  const CertificateAuthority ca_{folder_};
  std::unique_ptr<CoordinatorProcess> coordinator_;
};

INSTANTIATE_TEST_SUITE_P(Ways, CertificatesTest, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Frames" : "Grpc"; });

TEST_P(CertificatesTest, ClientsThatAreRefused) {
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(ca_.Sign("server", kServer)));
  UseInThisProcess({"", "", ca_.path()});
  ExpectError(coordinator_->address(), "certificate required");
  const CertificateAuthority other(folder_, "other");
  TlsFiles foreign = other.Sign("foreign", kClient);
  foreign.ca = ca_.path();
  UseInThisProcess(foreign);
  ExpectError(coordinator_->address(), "unknown ca");
  CertificateNames expired = kClient;
  expired.ends = -absl::Minutes(1);
  UseInThisProcess(ca_.Sign("expired", expired));
  ExpectError(coordinator_->address(), "certificate expired");
  UseInThisProcess(ca_.Sign("client", kClient));
  EXPECT_TRUE(Store()->Put("key", "value", {}, kLong).ok());
}

TEST_P(CertificatesTest, ServersThatAreRefused) {
  UseInThisProcess(ca_.Sign("client", kClient));
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(ca_.Sign("server", {"server", "DNS:elsewhere"})));
  ExpectError(coordinator_->address(), "IP address mismatch (of elsewhere)");
  const CertificateAuthority other(folder_, "other");
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(other.Sign("other-server", kServer)));
  ExpectError(coordinator_->address(), "self-signed certificate in certificate chain (of other)");
  CertificateNames expired = kServer;
  expired.ends = -absl::Minutes(1);
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(ca_.Sign("expired", expired)));
  ExpectError(coordinator_->address(), "certificate has expired (of localhost)");
}

TEST_P(CertificatesTest, FilesThatAreMissing) {
  UseInThisProcess({"", "", folder_ + "/none.crt"});
  ConnectionOptions options;
  options.address = "127.0.0.1:1";
  const absl::Status status = Connection::Create(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("none.crt: No such file"));
}

TEST_P(CertificatesTest, PlainConnectionsStayOnThisMachine) {
  const std::string address = NetworkAddress();
  if (address.empty()) GTEST_SKIP() << "this machine has no address besides the loopback one";
  sockaddr_in server = {};
  server.sin_family = AF_INET;
  inet_pton(AF_INET, address.c_str(), &server.sin_addr);
  auto* const raw = reinterpret_cast<sockaddr*>(&server);
  socklen_t size = sizeof(server);
  {
    const UniqueFd free_port(socket(AF_INET, SOCK_STREAM, 0));
    ASSERT_EQ(bind(free_port.get(), raw, size), 0);
    ASSERT_EQ(getsockname(free_port.get(), raw, &size), 0);
  }
  const std::string listen = absl::StrCat(address, ":", ntohs(server.sin_port));
  ASSERT_NO_FATAL_FAILURE(
      StartCoordinator(ca_.Sign("server", {"server", absl::StrCat("IP:", address)}), listen));
  UseInThisProcess({});
  // By 127.0.0.1 it is served, and has no rights.
  EXPECT_EQ(Store()->Put("key", "value", {}, kLong).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(Error(listen), HasSubstr("is away"));
  UseInThisProcess(ca_.Sign("client", kClient));
  EXPECT_TRUE(Store(listen)->Put("key", "value", {}, kLong).ok());
  // The coordinator closes a plain connection at its first bytes.
  const UniqueFd plain(socket(AF_INET, SOCK_STREAM, 0));
  const timeval timeout = {static_cast<time_t>(absl::ToInt64Seconds(kLong)), 0};
  setsockopt(plain.get(), SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  ASSERT_EQ(connect(plain.get(), raw, size), 0);
  ASSERT_EQ(send(plain.get(), "COHORT/1", 8, MSG_NOSIGNAL), 8);
  char byte = 0;
  const ssize_t count = recv(plain.get(), &byte, 1, 0);
  EXPECT_TRUE(count == 0 || (count < 0 && errno == ECONNRESET)) << count << " " << errno;
}

// Calls go on while all certificates are replaced, also those of a new CA. A client that keeps the
// old ones loses its connection, too.
TEST_P(CertificatesTest, ReplacedUnderLoad) {
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(ca_.Sign("server", kServer)));
  UseInThisProcess(ca_.Sign("old-client", kClient));
  auto old = Store();
  ASSERT_TRUE(old->Put("key", "value", {}, kLong).ok());
  UseInThisProcess(ca_.Sign("client", kClient));
  auto store = Store();
  ASSERT_TRUE(store->Put("key", "value", {}, kLong).ok());
  std::atomic<bool> ends{false};
  std::thread load([&] {
    while (!ends) {
      const auto put = store->Put("key", "value", {}, kLong);
      EXPECT_TRUE(put.ok()) << put.status();
    }
  });
  const CertificateAuthority next(folder_);  // its file takes the place of the first one's
  next.Sign("server", kServer);
  next.Sign("client", kClient);
  // The coordinator looks at its files once a second.
  EXPECT_TRUE(Eventually([&] { return !old->Put("key", "value", {}, kShort).ok(); }));
  EXPECT_TRUE(Eventually([&] { return Store()->Put("other", "value", {}, kShort).ok(); }));
  UseInThisProcess(ca_.Sign("old-client", kClient));
  ExpectError(coordinator_->address(), "alert");
  ends = true;
  load.join();
}

TEST_P(CertificatesTest, AConnectionEndsWithItsCertificate) {
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(ca_.Sign("server", kServer)));
  CertificateNames brief = kClient;
  brief.ends = absl::Seconds(4);
  UseInThisProcess(ca_.Sign("brief", brief));
  const auto store = Store();
  ASSERT_TRUE(store->Put("key", "value", {}, kLong).ok());
  UseInThisProcess(ca_.Sign("client", kClient));
  ASSERT_TRUE(Store()->Put("key", "value", {}, kLong).ok());
  absl::Status refused;
  EXPECT_TRUE(Eventually([&] {
    refused = store->Put("key", "value", {}, kShort).status();
    return !refused.ok();
  }));
  if (GetParam()) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr("certificate expired"));
  }
}

TEST_P(CertificatesTest, ARevokedCertificateEndsItsConnection) {
  const std::string list = ca_.Revoke("clients", "");
  ASSERT_NO_FATAL_FAILURE(
      StartCoordinator(ca_.Sign("server", kServer), "", {"--tls-client-crl", list}));
  const TlsFiles stolen = ca_.Sign("stolen", kClient);
  UseInThisProcess(stolen);
  const auto thief = Store();
  ASSERT_TRUE(thief->Put("key", "value", {}, kLong).ok());
  UseInThisProcess(ca_.Sign("client", kClient));
  const auto store = Store();
  ASSERT_TRUE(store->Put("key", "value", {}, kLong).ok());
  ca_.Revoke("clients", stolen.certificate);
  EXPECT_TRUE(Eventually([&] { return !thief->Put("key", "value", {}, kShort).ok(); }));
  EXPECT_TRUE(store->Put("key", "value", {}, kLong).ok());
  UseInThisProcess(stolen);
  ExpectError(coordinator_->address(), "certificate revoked");
}

TEST_P(CertificatesTest, ACaSignsForItsTrustDomainAlone) {
  const CertificateAuthority partner(folder_, "partner");
  TlsFiles server = ca_.Sign("server", kServer);
  server.ca.clear();
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(
      server, "",
      {"--tls-client-ca", "test=" + ca_.path(), "--tls-client-ca", "partner=" + partner.path()}));
  UseInThisProcess(ca_.Sign("client", kClient));
  EXPECT_TRUE(Store()->Put("key", "value", {}, kLong).ok());
  TlsFiles foreign = partner.Sign("foreign", kClient);
  foreign.ca = ca_.path();
  UseInThisProcess(foreign);
  ExpectError(coordinator_->address(), "bad certificate");
}

// As with certificates of an hour: the members are told nothing, and lose nothing.
TEST_P(CertificatesTest, AGroupOutlivesItsCertificates) {
  ASSERT_NO_FATAL_FAILURE(StartCoordinator(ca_.Sign("server", kServer)));
  CertificateNames brief = kClient;
  brief.ends = absl::Seconds(4);
  const absl::Time first_ends = absl::Now() + brief.ends;
  UseInThisProcess(ca_.Sign("client", brief));
  std::vector<std::thread> members;
  for (int rank = 0; rank < 2; ++rank) {
    members.emplace_back([&, rank] {
      ProcessGroupOptions options;
      options.connection.address = coordinator_->address();
      options.connection.framed_rpc = GetParam();
      options.group = "g";
      options.rank = rank;
      options.world_size = 2;
      options.join_timeout = kLong;
      options.timeout = kLong;
      const auto group = ProcessGroup::Create(options);
      ASSERT_TRUE(group.ok()) << group.status();
      absl::Time renewed = absl::Now();
      bool last = false;
      while (!last) {
        if (rank == 0 && absl::Now() > renewed + absl::Seconds(1)) {
          renewed = absl::Now();
          ca_.Sign("client", brief);
        }
        // By then the certificate of a second connection would have ended, too.
        last = absl::Now() > first_ends + 2 * brief.ends;
        const auto agreed = (*group)->AllGather(last ? "last" : "");
        ASSERT_TRUE(agreed.ok()) << agreed.status();
        last = (*agreed)[0] == "last" || (*agreed)[1] == "last";
      }
      EXPECT_EQ((*group)->generation(), 1);
    });
  }
  for (std::thread& member : members) member.join();
}

}  // namespace
}  // namespace cohort::client
