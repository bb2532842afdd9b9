// A network of IP addresses, such as those of load balancers.
#ifndef COHORT_BASE_PORT_PEER_IP_NETWORK_H_
#define COHORT_BASE_PORT_PEER_IP_NETWORK_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

class IpNetwork {
 public:
  // "10.0.0.0/8", "fd00::/8", or one address. Errors: INVALID_ARGUMENT (another form).
  static absl::StatusOr<IpNetwork> Parse(absl::string_view text);
  // `address` is of an IPv4 or IPv6 client, without a port. False for others.
  bool Contains(const std::string& address) const;

 private:
  // IPv4 addresses are those of ::ffff:0:0/96.
  std::array<uint8_t, 16> address_ = {};
  int bits_ = 128;
};

absl::StatusOr<std::vector<IpNetwork>> ParseIpNetworks(const std::vector<std::string>& texts);

}  // namespace cohort

#endif  // COHORT_BASE_PORT_PEER_IP_NETWORK_H_
