// The network variables of ranks and queues: which address they advertise, at which ports they
// listen.
#ifndef COHORT_BASE_RPC_RANK_NETWORK_H_
#define COHORT_BASE_RPC_RANK_NETWORK_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cohort {

// The address that the environment chooses for this process.
struct AdvertisedHost {
  std::string host;    // empty: the environment chooses none
  std::string origin;  // for errors, such as "COHORT_SOCKET_IFNAME=eth (interface eth0)"
};

// COHORT_ADVERTISED_HOST, or else the first address of an interface that COHORT_SOCKET_IFNAME
// selects. That has NCCL's syntax: "eth,ib" is a list of prefixes, "=eth0" of names; "^docker,lo"
// and "^=docker0" exclude. IPv4 comes first; link-local addresses do not count. A list that
// excludes selects no loopback interface. Errors: INVALID_ARGUMENT (syntax; names variable and
// value), FAILED_PRECONDITION (no such interface has an address; lists the interfaces).
absl::StatusOr<AdvertisedHost> AdvertisedHostOfEnvironment();

// Whether a list in the syntax of COHORT_SOCKET_IFNAME selects the interface.
absl::StatusOr<bool> SelectsInterface(absl::string_view list, absl::string_view interface);

// The ports at which a listening socket may be opened, in the order to try: {0}, any free port,
// unless COHORT_PORT_RANGE is set, such as "7800-7899". Errors: INVALID_ARGUMENT (syntax; names
// variable and value).
absl::StatusOr<std::vector<int>> ListenPortsOfEnvironment();

// RESOURCE_EXHAUSTED: all of those ports are taken on the host.
absl::Status NoPortOfRangeIsFree(absl::string_view host);

}  // namespace cohort

#endif  // COHORT_BASE_RPC_RANK_NETWORK_H_
