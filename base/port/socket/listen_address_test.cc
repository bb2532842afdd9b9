#include "base/port/socket/listen_address.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace cohort {
namespace {

TEST(ListenAddressTest, WellFormed) {
  const auto v4 = ParseListenAddress("127.0.0.1:7700");
  ASSERT_TRUE(v4.ok());
  EXPECT_EQ(v4->host, "127.0.0.1");
  EXPECT_EQ(v4->port, 7700);
  EXPECT_TRUE(v4->is_loopback());
  EXPECT_EQ(v4->WithPort(5), "127.0.0.1:5");
  const auto v6 = ParseListenAddress("[::1]:0");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_TRUE(v6->is_loopback());
  EXPECT_EQ(v6->WithPort(9), "[::1]:9");
  const auto path = ParseListenAddress("unix:/run/cohort.sock");
  ASSERT_TRUE(path.ok());
  EXPECT_TRUE(path->is_unix());
  EXPECT_TRUE(path->is_loopback());
  EXPECT_EQ(path->WithPort(1), "unix:/run/cohort.sock");
}

TEST(ListenAddressTest, OpenToOthers) {
  for (const char* text : {"0.0.0.0:1", "[::]:1", "10.0.0.1:1", "example.org:1", "128.0.0.1:1"}) {
    const auto address = ParseListenAddress(text);
    ASSERT_TRUE(address.ok()) << text;
    EXPECT_FALSE(address->is_loopback()) << text;
  }
}

TEST(ListenAddressTest, ProtocolsStandBehindTheAddress) {
  EXPECT_EQ(SplitProtocols("[::]:7700").address, "[::]:7700");
  EXPECT_TRUE(SplitProtocols("[::]:7700").protocols.empty());
  const AddressAndProtocols two = SplitProtocols("fd://3,rpc,tcpstore");
  EXPECT_EQ(two.address, "fd://3");
  EXPECT_EQ(two.protocols, (std::vector<std::string>{"rpc", "tcpstore"}));
  EXPECT_EQ(SplitProtocols("unix:/a,b").address, "unix:/a,b");
}

TEST(ListenAddressTest, Malformed) {
  for (const char* text : {"", "7700", ":7700", "::1:7700", "[::1]", "[::1:7700", "[x]:1",
                           "h:65536", "h:-1", "h:", "h:1x", "unix:", "unix:relative",
                           "fd://", "fd://x", "fd://-1", "fd://0x", "fd://99999"}) {
    EXPECT_EQ(ParseListenAddress(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace cohort
