#include "base/port/peer/peer_address.h"

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(PeerAddressTest, OneClientOfIpv6HasOneNetwork) {
  EXPECT_EQ(CountedAddress("2001:db8:0:7:1:2:3:4"), "2001:db8:0:7::/64");
  EXPECT_EQ(CountedAddress("2001:db8:0:7::ffff"), "2001:db8:0:7::/64");
  EXPECT_EQ(CountedAddress("2001:db8:0:8::ffff"), "2001:db8:0:8::/64");
  EXPECT_EQ(CountedAddress("fd00::3"), "fd00::/64");
}

TEST(PeerAddressTest, OtherAddressesStayAsTheyAre) {
  for (const char* const address : {"10.0.0.3", "::1", "fe80::2", "user 1000", "unknown", ""}) {
    EXPECT_EQ(CountedAddress(address), address);
  }
}

}  // namespace
}  // namespace cohort
