#include "base/rpc/rank_network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/rpc/random_bits.h"
#include "base/status_macros.h"

namespace cohort {
namespace {

constexpr char kHost[] = "COHORT_ADVERTISED_HOST";
constexpr char kInterfaces[] = "COHORT_SOCKET_IFNAME";
constexpr char kPorts[] = "COHORT_PORT_RANGE";
constexpr int kMostPort = 65535;

absl::string_view Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

absl::Status Malformed(const char* name, absl::string_view value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(name, " is \"", value, "\", expected ", expected));
}

// Names are as the kernel allows them.
bool IsInterfaceName(absl::string_view name) {
  return !name.empty() && name.size() < IFNAMSIZ &&
         name.find_first_of("/ \t\n^=") == absl::string_view::npos;
}

// The address as text; empty if other hosts cannot use it without more words.
std::string TextOf(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  if (address->sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(address)->sin_addr, text,
              sizeof(text));
  } else if (address->sa_family == AF_INET6) {
    const in6_addr& number = reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
    if (!IN6_IS_ADDR_LINKLOCAL(&number)) inet_ntop(AF_INET6, &number, text, sizeof(text));
  }
  return text;
}

absl::StatusOr<AdvertisedHost> HostOfInterfaces(absl::string_view list) {
  COHORT_RETURN_IF_ERROR(SelectsInterface(list, "lo").status());
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return absl::ErrnoToStatus(errno, "getifaddrs");
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> all(found, &freeifaddrs);
  std::set<std::string> names;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = all.get(); entry != nullptr; entry = entry->ifa_next) {
      names.insert(entry->ifa_name);
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family ||
          (entry->ifa_flags & IFF_UP) == 0) {
        continue;
      }
      if (absl::StartsWith(list, "^") && (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
      COHORT_ASSIGN_OR_RETURN(const bool selected, SelectsInterface(list, entry->ifa_name));
      const std::string host = selected ? TextOf(entry->ifa_addr) : "";
      if (host.empty()) continue;
      return AdvertisedHost{
          host, absl::StrCat(kInterfaces, "=", list, " (interface ", entry->ifa_name, ")")};
    }
  }
  return absl::FailedPreconditionError(
      absl::StrCat(kInterfaces, " is \"", list, "\", and no such interface is up with an address; ",
                   "this host has ", absl::StrJoin(names, ", ")));
}

}  // namespace

absl::StatusOr<bool> SelectsInterface(absl::string_view list, absl::string_view interface) {
  absl::string_view names = list;
  const bool excludes = absl::ConsumePrefix(&names, "^");
  const bool exact = absl::ConsumePrefix(&names, "=");
  bool listed = false;
  for (const absl::string_view name : absl::StrSplit(names, ',')) {
    if (!IsInterfaceName(name)) {
      return Malformed(kInterfaces, list,
                       "a list such as \"eth,ib\" (prefixes), \"=eth0\" (names) or "
                       "\"^docker,lo\" (all others)");
    }
    listed = listed || (exact ? interface == name : absl::StartsWith(interface, name));
  }
  return listed != excludes;
}

absl::StatusOr<AdvertisedHost> AdvertisedHostOfEnvironment() {
  if (const absl::string_view host = Variable(kHost); !host.empty()) {
    if (host.find_first_of(" \t\n/[]") != absl::string_view::npos) {
      return Malformed(kHost, host, "one address or name of this host, without a port");
    }
    return AdvertisedHost{std::string(host), kHost};
  }
  if (const absl::string_view list = Variable(kInterfaces); !list.empty()) {
    return HostOfInterfaces(list);
  }
  return AdvertisedHost{};
}

absl::StatusOr<std::vector<int>> ListenPortsOfEnvironment() {
  const absl::string_view range = Variable(kPorts);
  if (range.empty()) return std::vector<int>{0};
  const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
  int first = 0;
  int last = 0;
  if (ends.size() != 2 || !absl::SimpleAtoi(ends[0], &first) || !absl::SimpleAtoi(ends[1], &last) ||
      first < 1 || first > last || last > kMostPort) {
    return Malformed(kPorts, range, "two ports of 1 to 65535 such as 7800-7899");
  }
  std::vector<int> ports(static_cast<size_t>(last - first + 1));
  std::iota(ports.begin(), ports.end(), first);
  // Processes that start at the same time begin at different ports.
  std::rotate(ports.begin(), ports.begin() + static_cast<long>(RandomBits().low % ports.size()),
              ports.end());
  return ports;
}

absl::Status NoPortOfRangeIsFree(absl::string_view host) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot listen on ", host, ": no port of ",
                                                   kPorts, "=", Variable(kPorts), " is free"));
}

}  // namespace cohort
