#include "base/port/peer/proxy_header.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/port/peer/ip_network.h"
#include "gtest/gtest.h"

namespace cohort {
namespace {

using std::string_literals::operator""s;

const std::string kBinary = "\r\n\r\n\0\r\nQUIT\n"s;
const std::string kTcp4 = kBinary + "\x21\x11\0\x0c\x0a\0\0\x07\x0a\0\0\x01\xa3\x5e\x1e\x14"s;

// How many bytes of `whole` the parser takes, once it has all of them; each shorter part needs
// more.
void ExpectTakes(const std::string& whole, const std::string& address, int port) {
  for (size_t size = 0; size < whole.size(); ++size) {
    const auto part = ParseProxyHeader(whole.substr(0, size));
    ASSERT_TRUE(part.ok()) << size << ": " << part.status();
    EXPECT_EQ(part->bytes, 0) << size;
  }
  for (const std::string& more : {std::string(), std::string("COHORT/1")}) {
    const auto header = ParseProxyHeader(whole + more);
    ASSERT_TRUE(header.ok()) << header.status();
    EXPECT_EQ(header->bytes, whole.size());
    EXPECT_EQ(header->address, address);
    EXPECT_EQ(header->port, port);
  }
}

TEST(ProxyHeaderTest, Text) {
  ExpectTakes("PROXY TCP4 10.0.0.7 10.0.0.1 41822 7700\r\n", "10.0.0.7", 41822);
  ExpectTakes("PROXY TCP6 fd00::0007 fd00::1 41822 7700\r\n", "fd00::7", 41822);
  ExpectTakes("PROXY UNKNOWN\r\n", "", 0);
  ExpectTakes("PROXY UNKNOWN x y z\r\n", "", 0);
}

TEST(ProxyHeaderTest, Binary) {
  ExpectTakes(kTcp4, "10.0.0.7", 41822);
  ExpectTakes(kBinary + "\x21\x21\0\x26"s + std::string(15, '\xfd') + "\x07"s +
                  std::string(16, '\0') + "\xa3\x5e\x1e\x14xx"s,
              "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fd07", 41822);
  // A health check of the balancer, and a client of a Unix socket.
  ExpectTakes(kBinary + "\x20\x00\0\0"s, "", 0);
  ExpectTakes(kBinary + "\x21\x31\0\x02xx"s, "", 0);
}

TEST(ProxyHeaderTest, Malformed) {
  for (const std::string& wrong :
       {"COHORT/1"s, "\x16\x03\x01"s, "PROXY TCP4 10.0.0.7\r\n"s,
        "PROXY TCP5 10.0.0.7 10.0.0.1 1 2\r\n"s, "PROXY TCP4 fd00::7 fd00::1 1 2\r\n"s,
        "PROXY TCP4 10.0.0.7 10.0.0.1 65536 2\r\n"s, "PROXY TCP4 10.0.0.7 10.0.0.1 -1 2\r\n"s,
        "PROXY "s + std::string(200, 'x'), kBinary + "\x11\x11\0\x0c"s, kBinary + "\x22\x11\0\x0c"s,
        kBinary + "\x21\x11\xff\xff"s, kBinary + "\x21\x11\0\x02xx"s}) {
    EXPECT_EQ(ParseProxyHeader(wrong).status().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
}

TEST(IpNetworkTest, Contains) {
  const auto contains = [](const std::string& network, const std::string& address) {
    return IpNetwork::Parse(network).value().Contains(address);
  };
  EXPECT_TRUE(contains("10.0.0.0/8", "10.255.1.2"));
  EXPECT_FALSE(contains("10.0.0.0/8", "11.0.0.0"));
  EXPECT_TRUE(contains("10.0.0.128/25", "10.0.0.200"));
  EXPECT_FALSE(contains("10.0.0.128/25", "10.0.0.127"));
  EXPECT_TRUE(contains("10.0.0.7", "10.0.0.7"));
  EXPECT_TRUE(contains("0.0.0.0/0", "1.2.3.4"));
  EXPECT_FALSE(contains("0.0.0.0/0", "fd00::1"));
  EXPECT_TRUE(contains("fd00::/8", "fdff::1"));
  EXPECT_FALSE(contains("fd00::/8", "10.0.0.1"));
  EXPECT_FALSE(contains("::/0", "user 1000"));
}

TEST(IpNetworkTest, Malformed) {
  for (const char* const wrong : {"", "x", "10.0.0.0/33", "10.0.0.0/-1", "10.0.0.0/",
                                  "10.0.0.0/8/8", "fd00::/129", "10.0.0", "[fd00::]/8"}) {
    EXPECT_FALSE(IpNetwork::Parse(wrong).ok()) << wrong;
    EXPECT_FALSE(ParseIpNetworks({"10.0.0.0/8", wrong}).ok()) << wrong;
  }
}

}  // namespace
}  // namespace cohort
