#include "base/rpc/rank_network.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace {

// Interfaces of a test; null: this machine's.
ifaddrs* interfaces = nullptr;

}  // namespace

// Both replace the C library's in this test alone.
extern "C" int getifaddrs(ifaddrs** found) {
  static const auto real = reinterpret_cast<decltype(&getifaddrs)>(dlsym(RTLD_NEXT, "getifaddrs"));
  if (interfaces == nullptr) return real(found);
  *found = interfaces;
  return 0;
}
extern "C" void freeifaddrs(ifaddrs* found) {
  static const auto real =
      reinterpret_cast<decltype(&freeifaddrs)>(dlsym(RTLD_NEXT, "freeifaddrs"));
  if (found != interfaces) real(found);
}

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

// The interfaces of a host, while it lives.
class Interfaces {
 public:
  ~Interfaces() { interfaces = nullptr; }
  // Empty: without an address.
  void Add(const char* name, const std::string& address, unsigned flags = IFF_UP) {
    Entry& entry = entries_.emplace_back();
    entry.name = name;
    entry.entry.ifa_name = &entry.name[0];
    entry.entry.ifa_flags = flags;
    auto* const six = reinterpret_cast<sockaddr_in6*>(&entry.address);
    auto* const four = reinterpret_cast<sockaddr_in*>(&entry.address);
    if (inet_pton(AF_INET6, address.c_str(), &six->sin6_addr) == 1) {
      entry.address.ss_family = AF_INET6;
    } else if (inet_pton(AF_INET, address.c_str(), &four->sin_addr) == 1) {
      entry.address.ss_family = AF_INET;
    }
    if (!address.empty()) entry.entry.ifa_addr = reinterpret_cast<sockaddr*>(&entry.address);
    if (entries_.size() > 1) entries_[entries_.size() - 2].entry.ifa_next = &entry.entry;
    interfaces = &entries_.front().entry;
  }

 private:
  struct Entry {
    std::string name;
    sockaddr_storage address = {};
    ifaddrs entry = {};
  };
  std::deque<Entry> entries_;
};

TEST_F(RankNetworkTest, AnInterfaceGivesAnAddressThatOtherHostsCanUse) {
  Interfaces host;
  host.Add("lo", "127.0.0.1", IFF_UP | IFF_LOOPBACK);
  host.Add("tun0", "");
  host.Add("eth0", "10.0.0.1", 0);  // down
  host.Add("eth1", "fe80::1");
  host.Add("eth1", "2001:db8::1");
  host.Add("eth2", "2001:db8::2");
  host.Add("eth2", "10.0.0.2");
  host.Add("ib0", "fe80::3");
  const auto host_of = [](const char* list) {
    setenv("COHORT_SOCKET_IFNAME", list, 1);
    const auto chosen = AdvertisedHostOfEnvironment();
    return chosen.ok() ? chosen->host
                       : std::string(absl::StatusCodeToString(chosen.status().code()));
  };
  EXPECT_EQ(host_of("=eth1"), "2001:db8::1") << "a link-local address needs its interface";
  EXPECT_EQ(host_of("=eth2"), "10.0.0.2") << "IPv4 goes first";
  EXPECT_EQ(host_of("eth"), "10.0.0.2");
  EXPECT_EQ(host_of("^eth2,ib"), "2001:db8::1") << "without the loopback interface";
  EXPECT_EQ(host_of("lo"), "127.0.0.1");
  for (const char* list : {"=eth0", "ib", "tun0", "^eth1,eth2"}) {
    EXPECT_EQ(host_of(list), "FAILED_PRECONDITION") << list;
  }
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
