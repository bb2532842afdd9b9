// The addresses and ports that ranks of different hosts choose, and what ranks hear of another one
// that cannot connect.
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/failure/testing/child_process.h"
#include "tests/failure/testing/host_network.h"
#include "tests/failure/testing/members.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using testing::ChildProcess;
using ::testing::HasSubstr;
using testing::HostNetwork;
using testing::kTimeout;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

using Environment = std::map<std::string, std::string>;

// Ranks have a join timeout of 60 s; an error that comes at once comes long before.
constexpr absl::Duration kAtOnce = absl::Seconds(20);

class HostAddressesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    absl::StatusOr<std::unique_ptr<HostNetwork>> network = HostNetwork::Create(3);
    if (!network.ok()) GTEST_SKIP() << network.status();
    network_ = *std::move(network);
    started_ = Clock::Steady().Now();
  }

  // The coordinator serves all addresses of a host.
  void StartCoordinator(int host) {
    coordinator_ = std::make_unique<ChildProcess>(
        network_->On(host, {"coordinator/cohort-coordinator", "--listen", "0.0.0.0:7700",
                            "--insecure", "--metrics-listen", "", "--log-level", "warning"}));
  }

  // Rank i runs on host i.
  void StartRank(const std::string& coordinator, const Environment& environment = {}) {
    for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
    const int rank = static_cast<int>(ranks_.size());
    ranks_.push_back(std::make_unique<ChildProcess>(
        network_->On(rank, {"tests/failure/testing/rank_main", absl::StrCat(coordinator, ":7700"),
                            "group", absl::StrCat(rank), "2", "timeout_ms=60000"})));
    for (const auto& [name, value] : environment) unsetenv(name.c_str());
  }

  std::vector<std::string> Lines() {
    std::vector<std::string> lines;
    for (const auto& rank : ranks_) {
      const absl::StatusOr<std::string> line = rank->ReadLine(kTimeout);
      EXPECT_TRUE(line.ok()) << line.status() << "\n" << rank->ErrorText();
      lines.push_back(line.value_or(""));
    }
    return lines;
  }

  void ExpectAtOnce() const { EXPECT_LT(Clock::Steady().Now() - started_, kAtOnce); }

  std::unique_ptr<HostNetwork> network_;
  std::unique_ptr<ChildProcess> coordinator_;
  std::vector<std::unique_ptr<ChildProcess>> ranks_;
  Instant started_;
};

TEST_F(HostAddressesTest, ARankBesideTheCoordinatorTakesItsAddressTowardsOtherHosts) {
  StartCoordinator(0);
  StartRank("127.0.0.1");
  StartRank(HostNetwork::Address(0));
  const std::vector<std::string> lines = Lines();
  EXPECT_THAT(lines[0], HasSubstr(absl::StrCat("tcp ", HostNetwork::Address(1))));
  EXPECT_THAT(lines[1], HasSubstr(absl::StrCat("tcp ", HostNetwork::Address(0))));
}

TEST_F(HostAddressesTest, AChosenLoopbackAddressIsAnErrorOfAllRanks) {
  StartCoordinator(2);
  StartRank(HostNetwork::Address(2), {{"COHORT_ADVERTISED_HOST", "127.0.1.1"}});
  StartRank(HostNetwork::Address(2));
  for (const std::string& line : Lines()) {
    EXPECT_THAT(line, AllOf(StartsWith("failed FAILED_PRECONDITION"), HasSubstr("rank 0 "),
                            HasSubstr("127.0.1.1:"), HasSubstr("COHORT_ADVERTISED_HOST"),
                            HasSubstr("advertised_host")));
  }
  ExpectAtOnce();
}

TEST_F(HostAddressesTest, VariablesChooseInterfaceAndPort) {
  StartCoordinator(2);
  const Environment environment = {{"COHORT_SOCKET_IFNAME", "^lo"},
                                   {"COHORT_PORT_RANGE", "7800-7809"}};
  StartRank(HostNetwork::Address(2), environment);
  StartRank(HostNetwork::Address(2), environment);
  for (const std::string& line : Lines()) {
    EXPECT_THAT(line, MatchesRegex("joined .* tcp 10\\.77\\.0\\.[12]:780[0-9].*"));
  }
}

TEST_F(HostAddressesTest, ARankHearsAtOnceWhyAnotherOneCannotReachIt) {
  StartCoordinator(2);
  ASSERT_TRUE(network_->Block(1, 0).ok());
  StartRank(HostNetwork::Address(2));
  StartRank(HostNetwork::Address(2));
  const std::vector<std::string> lines = Lines();
  const std::string reason = absl::StrCat("rank 0 at ", HostNetwork::Address(0), ":");
  EXPECT_THAT(lines[0], AllOf(StartsWith("failed UNAVAILABLE"), HasSubstr("rank 1: "),
                              HasSubstr(reason), HasSubstr("No route to host")));
  EXPECT_THAT(lines[1], AllOf(StartsWith("failed UNAVAILABLE"), HasSubstr(reason)));
  ExpectAtOnce();
}

}  // namespace
}  // namespace cohort
