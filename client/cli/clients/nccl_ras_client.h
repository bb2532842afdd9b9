// How `who-is-missing` asks NCCL's own threads on this machine. Commands do not depend on NCCL: the
// program that links them decides how it is asked.
#ifndef COHORT_CLIENT_CLI_CLIENTS_NCCL_RAS_CLIENT_H_
#define COHORT_CLIENT_CLI_CLIENTS_NCCL_RAS_CLIENT_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::cli {

struct NcclRasSummary {
  struct Communicator {
    std::string hash;  // NCCL's own
    int size = 0;
    std::vector<std::string> findings;  // conspicuous facts, a sentence each
  };

  std::string version;
  std::vector<Communicator> communicators;
  int timeouts = 0;  // ranks that did not answer: then findings may be missing
};

class NcclRasClient {
 public:
  virtual ~NcclRasClient() = default;

  // `address`: HOST:PORT; empty: the address at which NCCL listens on this machine. Blocks for at
  // most `timeout`, and for a second if no process there speaks NCCL's protocol. Errors:
  // INVALID_ARGUMENT (the address), and those of the process that listens there, if there is one.
  virtual absl::StatusOr<NcclRasSummary> Ask(const std::string& address,
                                             absl::Duration timeout) = 0;
};

}  // namespace cohort::cli

#endif  // COHORT_CLIENT_CLI_CLIENTS_NCCL_RAS_CLIENT_H_
