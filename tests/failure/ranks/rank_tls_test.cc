// TLS on the sockets between ranks that share no memory: ranks with certificates, without, and with
// ones that the others refuse.
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/tls/testing/certificates.h"
#include "base/tls/tls_context.h"
#include "client/collective/trace/path_report.h"
#include "client/rendezvous/store_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/members.h"
#include "tests/testing/coordinator_process.h"

namespace cohort {
namespace {

using testing::CertificateAuthority;
using testing::ChildProcess;
using testing::CoordinatorProcess;
using ::testing::HasSubstr;
using testing::kTimeout;
using ::testing::StartsWith;

void SetTls(const TlsFiles& files, const std::string& rank_tls = "") {
  setenv("COHORT_TLS_CERTIFICATE", files.certificate.c_str(), 1);
  setenv("COHORT_TLS_KEY", files.key.c_str(), 1);
  setenv("COHORT_TLS_CA", files.ca.c_str(), 1);
  setenv("COHORT_RANK_TLS", rank_tls.c_str(), 1);
}

class RankTlsTest : public ::testing::Test {
 protected:
  // The coordinator has TLS and asks its clients for no certificate.
  void SetUp() override {
    CoordinatorProcess::Options options;
    const TlsFiles server = ca_.Sign("server", {"server", "DNS:localhost,IP:127.0.0.1"});
    options.flags = {"--tls-certificate", server.certificate, "--tls-key", server.key};
    coordinator_ = std::make_unique<CoordinatorProcess>(options);
    SetTls(good_);
    const absl::Status started = coordinator_->Start();
    ASSERT_TRUE(started.ok()) << started;
  }

  // Starts a rank of the group on a host of its own.
  void Start(const TlsFiles& files, const std::string& rank_tls = "", int size = 2,
             const std::string& more = "timeout_ms=60000") {
    SetTls(files, rank_tls);
    const auto rank = ranks_.size();
    ranks_.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{
        "tests/failure/testing/rank_main", coordinator_->address(), "group", absl::StrCat(rank),
        absl::StrCat(size), absl::StrCat("host=host-", rank), more}));
  }
  std::string Line(size_t rank) {
    const absl::StatusOr<std::string> line = ranks_[rank]->ReadLine(kTimeout);
    EXPECT_TRUE(line.ok()) << "rank " << rank << ": " << line.status() << "\n"
                           << ranks_[rank]->ErrorText();
    return line.value_or("nothing");
  }
  void ExpectJoined(const std::string& kind) {
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const std::string line = Line(rank);
      EXPECT_THAT(line, StartsWith("joined "));
      EXPECT_THAT(line, HasSubstr(absl::StrCat(" ", kind, " 127.0.0.1:")));
    }
  }
  void ExpectOk(const std::string& command) {
    for (const auto& rank : ranks_) rank->WriteLine(command);
    for (size_t rank = 0; rank < ranks_.size(); ++rank) EXPECT_THAT(Line(rank), StartsWith("OK"));
  }
  std::string PathsAtCoordinator() {
    SetTls(good_);
    const auto store =
        client::StoreClient::Create(testing::Connect(coordinator_->address()), "group");
    const auto kept = store->Get({std::string(client::kPathReportKey)});
    if (!kept.ok() || kept->values.empty()) return "none";
    const auto report = client::DecodePathReport(kept->values[0].value);
    return report.has_value() ? client::FormatPathReport(*report) : "malformed";
  }

  const CertificateAuthority ca_{testing::NewFolder()};
  const TlsFiles good_ = ca_.Sign("rank", {"rank", ""});
  const TlsFiles without_certificate_ = {"", "", ca_.path()};
  std::unique_ptr<CoordinatorProcess> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
};

TEST_F(RankTlsTest, EveryOperationAndLargeMessages) {
  for (int rank = 0; rank < 3; ++rank) Start(good_, "", 3);
  ExpectJoined("tls");
  EXPECT_TRUE(testing::Eventually(
      [this] { return PathsAtCoordinator() == "TCP with TLS between all ranks"; }));
  for (const char* const operation :
       {"all_reduce", "broadcast", "all_gather", "reduce_scatter", "all_to_all", "exchange"}) {
    for (const char* const what : {"8 plain", "65536 registered", "3000000 plain"}) {
      ExpectOk(absl::StrCat("once ", operation, " ", what));
    }
  }
  ExpectOk("once all_reduce 67108864 registered");
  ExpectOk("rejoin");
  ExpectOk("once all_reduce 67108864 plain");
}

TEST_F(RankTlsTest, OffOnAllRanksIsPlain) {
  Start(good_, "off");
  Start(good_, "off");
  ExpectJoined("tcp");
  ExpectOk("once all_reduce 3000000 plain");
}

TEST_F(RankTlsTest, RanksThatDifferAllGetTheSameError) {
  struct Case {
    TlsFiles files[2];
    std::string settings[2];
    std::string reason;
  };
  const std::vector<Case> cases = {
      {{good_, without_certificate_}, {}, "rank 1 on "},
      {{without_certificate_, good_}, {}, "rank 0 on "},
      {{good_, good_}, {"", "off"}, "rank 1 on "},
      {{good_, good_}, {"off", "on"}, "rank 0 on "},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.reason);
    ranks_.clear();
    for (const int rank : {0, 1}) Start(each.files[rank], each.settings[rank]);
    const std::string first = Line(0);
    EXPECT_THAT(first, StartsWith("failed FAILED_PRECONDITION ranks of group group differ in TLS "
                                  "between hosts: "));
    EXPECT_THAT(first, HasSubstr(each.reason));
    EXPECT_THAT(first, HasSubstr(each.settings[0].empty() && each.settings[1].empty()
                                     ? " has CA certificates (COHORT_TLS_CA) and no certificate of "
                                       "its own (COHORT_TLS_CERTIFICATE), rank "
                                     : " has COHORT_RANK_TLS=off, rank "));
    EXPECT_EQ(Line(1), first);
  }
}

// Their coordinator has TLS, so they do not expect their tensors in plain text.
TEST_F(RankTlsTest, RanksWithoutCertificatesSendNoPlainTextUnlessTold) {
  for (int rank = 0; rank < 2; ++rank) Start(without_certificate_, "");
  const std::string first = Line(0);
  EXPECT_THAT(first, StartsWith("failed FAILED_PRECONDITION ranks of group group would use plain "
                                "text between hosts, and rank 0 on "));
  EXPECT_EQ(Line(1), first);
  ranks_.clear();
  for (int rank = 0; rank < 2; ++rank) Start(without_certificate_, "off");
  ExpectJoined("tcp");
}

TEST_F(RankTlsTest, ARefusedCertificateIsNamedOnBothSides) {
  const CertificateAuthority other(testing::NewFolder(), "other-ca");
  TlsFiles foreign = other.Sign("foreign", {"foreign", ""});
  foreign.ca = ca_.path();
  testing::CertificateNames names = {"late", ""};
  names.ends = -absl::Minutes(1);
  struct Case {
    TlsFiles files;
    std::string refusal;
    std::string alert;
  };
  for (const Case& each :
       {Case{foreign, "unable to get local issuer", "unknown ca"},
        Case{ca_.Sign("late", names), "certificate has expired (of ", "certificate expired"}}) {
    for (const size_t refused : {size_t{0}, size_t{1}}) {
      SCOPED_TRACE(absl::StrCat("rank ", refused, ": ", each.refusal));
      ranks_.clear();
      for (const size_t rank : {size_t{0}, size_t{1}}) Start(rank == refused ? each.files : good_);
      const std::string at_refused = Line(refused);
      const std::string at_other = Line(1 - refused);
      EXPECT_THAT(at_other,
                  StartsWith(absl::StrCat("failed UNAUTHENTICATED rank ", refused, " at ")));
      EXPECT_THAT(at_other, HasSubstr(each.refusal));
      EXPECT_THAT(at_refused,
                  StartsWith(absl::StrCat("failed UNAUTHENTICATED rank ", 1 - refused, " at ")));
      EXPECT_THAT(at_refused, HasSubstr(each.alert));
    }
  }
}

// The daemons connect the ranks, and their clients put TLS on the sockets.
TEST_F(RankTlsTest, AttachedRanks) {
  std::vector<std::unique_ptr<ChildProcess>> workers;
  std::string folder = "/tmp/rank-tls-XXXXXX";  // a socket's path is short
  ASSERT_NE(mkdtemp(&folder[0]), nullptr);
  for (const int rank : {0, 1}) {
    const std::string path = absl::StrCat(folder, "/worker-", rank);
    SetTls(good_);
    workers.push_back(std::make_unique<ChildProcess>(std::vector<std::string>{
        "worker/daemon/cohort-worker", "--listen", absl::StrCat("unix:", path), "--coordinator",
        coordinator_->address(), "--host-identity", absl::StrCat("host-", rank), "--metrics-listen",
        "", "--log-level", "info"}));
    ASSERT_TRUE(testing::Eventually([&path] { return access(path.c_str(), F_OK) == 0; }));
    Start(good_, "", 2, absl::StrCat("attached=unix:", path));
  }
  ExpectJoined("tls");
  ExpectOk("once all_reduce 3000000 registered");
  ExpectOk("rejoin");
  ExpectOk("once all_reduce 3000000 plain");
  EXPECT_THAT(workers[0]->ErrorText(), HasSubstr("between_hosts=tls"));
  ranks_.clear();
  workers.clear();
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace cohort
