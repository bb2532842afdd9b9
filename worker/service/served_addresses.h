// Where a worker can be asked, as others must say it.
#ifndef COHORT_WORKER_SERVICE_SERVED_ADDRESSES_H_
#define COHORT_WORKER_SERVICE_SERVED_ADDRESSES_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cohort::worker {

// `bound` (host:port or unix:/path), where those that stand for all addresses of the host, 0.0.0.0
// and [::], name one of them: `advertised_host`, or if that is empty the one that leads to
// `coordinator`. As many as a member may have, each once.
std::vector<std::string> AddressesForOthers(const std::vector<std::string>& bound,
                                            const std::string& advertised_host,
                                            absl::string_view coordinator);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_SERVICE_SERVED_ADDRESSES_H_
