#include "worker/daemon/methods/served_addresses.h"

#include <algorithm>

#include "base/port/socket/listen_address.h"
#include "worker/group/bootstrap/host_identity.h"

namespace cohort::worker {
namespace {

// The limit of a member, from group.proto.
constexpr size_t kMostAddresses = 16;

bool StandsForAll(const ListenAddress& address) {
  return address.host == "0.0.0.0" || address.host == "::";
}

}  // namespace

std::vector<std::string> AddressesForOthers(const std::vector<std::string>& bound,
                                            const std::string& advertised_host,
                                            absl::string_view coordinator) {
  std::vector<std::string> addresses;
  for (const std::string& text : bound) {
    absl::StatusOr<ListenAddress> address = ParseListenAddress(text);
    if (!address.ok() || addresses.size() == kMostAddresses) continue;
    if (StandsForAll(*address)) {
      address->host = advertised_host.empty() ? LocalAddressTowards(coordinator) : advertised_host;
    }
    std::string said = address->WithPort(address->port);
    if (std::find(addresses.begin(), addresses.end(), said) != addresses.end()) continue;
    addresses.push_back(std::move(said));
  }
  return addresses;
}

}  // namespace cohort::worker
