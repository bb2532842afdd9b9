// The addresses at which other hosts reach a worker.
#ifndef COHORT_WORKER_DAEMON_METHODS_SERVED_ADDRESSES_H_
#define COHORT_WORKER_DAEMON_METHODS_SERVED_ADDRESSES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cohort::worker {

// Returns the addresses of `bound` (host:port or unix:/path), each once, at most as many as a
// member may have. 0.0.0.0 and [::] become `advertised_host`. If that is empty, they become the
// local address towards `coordinator`.
std::vector<std::string> AddressesForOthers(const std::vector<std::string>& bound,
                                            const std::string& advertised_host,
                                            absl::string_view coordinator);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_DAEMON_METHODS_SERVED_ADDRESSES_H_
