// The identity of this host, and the address at which others reach it.
#ifndef COHORT_WORKER_GROUP_BOOTSTRAP_HOST_IDENTITY_H_
#define COHORT_WORKER_GROUP_BOOTSTRAP_HOST_IDENTITY_H_

#include <string>

#include "absl/strings/string_view.h"

namespace cohort::worker {

// The same in all processes of this machine until it restarts, whatever their namespaces.
std::string MachineIdentity();

// The same in all processes that can connect by Unix sockets without a file: of one machine, until
// it restarts, and one network namespace.
std::string HostIdentity();

// The same in all processes that share a steady clock: of one machine, until it restarts, and one
// time namespace.
std::string ClockIdentity();

// Returns the local address from which packets to `address` ("host:port", "[::1]:7700") leave.
// Returns the loopback address if there is no route, or if the address is a path. `why` (may be
// null) gets the reason for a choice, for errors.
std::string LocalAddressTowards(absl::string_view address, std::string* why = nullptr);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_BOOTSTRAP_HOST_IDENTITY_H_
