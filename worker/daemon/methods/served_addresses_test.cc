#include "worker/daemon/methods/served_addresses.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

TEST(ServedAddressesTest, AreAsBound) {
  EXPECT_THAT(
      AddressesForOthers({"unix:/run/w", "127.0.0.1:7800", "[::1]:7", "h:9"}, "adv", "c:7700"),
      ElementsAre("unix:/run/w", "127.0.0.1:7800", "[::1]:7", "h:9"));
}

TEST(ServedAddressesTest, NameOneOfAll) {
  EXPECT_THAT(AddressesForOthers({"0.0.0.0:7800", "[::]:7800", "[::]:7801"}, "host-a", "c:7700"),
              ElementsAre("host-a:7800", "host-a:7801"));
  EXPECT_THAT(AddressesForOthers({"0.0.0.0:7800"}, "fd00::7", "c:7700"),
              ElementsAre("[fd00::7]:7800"));
  EXPECT_THAT(AddressesForOthers({"0.0.0.0:7800"}, "", "127.0.0.1:7700"),
              ElementsAre("127.0.0.1:7800"));
  EXPECT_THAT(AddressesForOthers({"0.0.0.0:7800"}, "", "unix:/c"), ElementsAre("127.0.0.1:7800"));
}

TEST(ServedAddressesTest, AreNoMoreThanAMemberMayHave) {
  std::vector<std::string> many;
  for (int port = 1; port <= 20; ++port) many.push_back("h:" + std::to_string(port));
  EXPECT_THAT(AddressesForOthers(many, "", "c:7700"), SizeIs(16));
}

}  // namespace
}  // namespace cohort::worker
