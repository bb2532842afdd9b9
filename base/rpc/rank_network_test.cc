#include "base/rpc/rank_network.h"

#include <cstdlib>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

class RankNetworkTest : public ::testing::Test {
 protected:
  ~RankNetworkTest() override {
    for (const char* name : {"COHORT_ADVERTISED_HOST", "COHORT_SOCKET_IFNAME", "COHORT_PORT_RANGE"})
      unsetenv(name);
  }
};

TEST_F(RankNetworkTest, NothingIsSet) {
  EXPECT_EQ(AdvertisedHostOfEnvironment()->host, "");
  EXPECT_THAT(*ListenPortsOfEnvironment(), ElementsAre(0));
}

TEST_F(RankNetworkTest, ListsOfInterfacesAreNccls) {
  EXPECT_TRUE(*SelectsInterface("eth,ib", "eth1"));
  EXPECT_TRUE(*SelectsInterface("eth,ib", "ib0"));
  EXPECT_FALSE(*SelectsInterface("eth,ib", "docker0"));
  EXPECT_TRUE(*SelectsInterface("=eth0", "eth0"));
  EXPECT_FALSE(*SelectsInterface("=eth0", "eth01"));
  EXPECT_FALSE(*SelectsInterface("^docker,lo", "docker0"));
  EXPECT_FALSE(*SelectsInterface("^docker,lo", "lo"));
  EXPECT_TRUE(*SelectsInterface("^docker,lo", "eth0"));
  EXPECT_TRUE(*SelectsInterface("^=docker0", "docker01"));
}

TEST_F(RankNetworkTest, AnInterfaceGivesItsAddress) {
  setenv("COHORT_SOCKET_IFNAME", "=lo", 1);
  const auto chosen = AdvertisedHostOfEnvironment();
  ASSERT_TRUE(chosen.ok()) << chosen.status();
  EXPECT_EQ(chosen->host, "127.0.0.1");
  EXPECT_EQ(chosen->origin, "COHORT_SOCKET_IFNAME==lo (interface lo)");
}

TEST_F(RankNetworkTest, AnAddressGoesBeforeAnInterface) {
  setenv("COHORT_SOCKET_IFNAME", "=lo", 1);
  setenv("COHORT_ADVERTISED_HOST", "node7", 1);
  EXPECT_EQ(AdvertisedHostOfEnvironment()->host, "node7");
  EXPECT_EQ(AdvertisedHostOfEnvironment()->origin, "COHORT_ADVERTISED_HOST");
}

TEST_F(RankNetworkTest, AnAbsentInterfaceIsNamedWithThoseThatExist) {
  setenv("COHORT_SOCKET_IFNAME", "wg,tun", 1);
  const absl::Status status = AdvertisedHostOfEnvironment().status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("COHORT_SOCKET_IFNAME is \"wg,tun\""), HasSubstr("lo")));
}

TEST_F(RankNetworkTest, WrongSyntaxIsNamedWithVariableAndValue) {
  for (const char* list : {"eth,,ib", "^", "=", "eth 0", "a-name-that-is-too-long", ","}) {
    setenv("COHORT_SOCKET_IFNAME", list, 1);
    const absl::Status status = AdvertisedHostOfEnvironment().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << list << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("COHORT_SOCKET_IFNAME is \"") + list + "\""));
  }
  setenv("COHORT_ADVERTISED_HOST", "10.0.0.1 10.0.0.2", 1);
  EXPECT_THAT(std::string(AdvertisedHostOfEnvironment().status().message()),
              HasSubstr("COHORT_ADVERTISED_HOST is \"10.0.0.1 10.0.0.2\""));
  for (const char* range : {"7800", "7899-7800", "0-10", "7800-70000", "a-b", "7800-7899-1", "-"}) {
    setenv("COHORT_PORT_RANGE", range, 1);
    const absl::Status status = ListenPortsOfEnvironment().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << range << ": " << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr(std::string("COHORT_PORT_RANGE is \"") + range + "\""));
  }
}

TEST_F(RankNetworkTest, APortRangeHasBothEnds) {
  setenv("COHORT_PORT_RANGE", "7800-7802", 1);
  EXPECT_THAT(*ListenPortsOfEnvironment(), UnorderedElementsAre(7800, 7801, 7802));
  EXPECT_THAT(std::string(NoPortOfRangeIsFree("10.0.0.4").message()),
              AllOf(HasSubstr("10.0.0.4"), HasSubstr("COHORT_PORT_RANGE=7800-7802")));
}

}  // namespace
}  // namespace cohort
