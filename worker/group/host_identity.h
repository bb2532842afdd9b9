// Which host this is, and by which address others reach it.
#ifndef COHORT_WORKER_GROUP_HOST_IDENTITY_H_
#define COHORT_WORKER_GROUP_HOST_IDENTITY_H_

#include <string>

#include "absl/strings/string_view.h"

namespace cohort::worker {

// The same in all processes of this machine since it started, whatever their namespaces.
std::string MachineIdentity();

// The same in all processes that can meet by Unix sockets without a file: this machine, since it
// started, and network namespace.
std::string HostIdentity();

// The same in all processes whose steady clock is the same one: of this machine, since it started.
std::string ClockIdentity();

// The local address from which packets to `address` ("host:port", "[::1]:7700") leave; that of
// loopback where none do, or the address is a path.
std::string LocalAddressTowards(absl::string_view address);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_HOST_IDENTITY_H_
