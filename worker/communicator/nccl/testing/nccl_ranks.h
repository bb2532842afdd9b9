// A group over the fake NCCL: each rank on a thread of its own, with a device of its own.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_NCCL_RANKS_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_NCCL_RANKS_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/communicator/nccl/nccl_communicator.h"

namespace cohort::worker {

inline constexpr int kFakeComputeCapability = 90;

// One rank, and the host communicator by which it agrees.
struct NcclRank {
  std::unique_ptr<Communicator> host;
  absl::StatusOr<std::unique_ptr<NcclCommunicator>> nccl = absl::UnknownError("absent");
};
using NcclRanks = std::vector<NcclRank>;

// One for each rank, sharing memory.
std::vector<std::unique_ptr<Communicator>> MakeHosts(int size);

struct NcclRanksOptions {
  std::vector<int> absent;  // they do not come
  NcclAgreement agreement = NcclAgreement::kAsync;
  bool operation_log = false;
  // Changes what one rank's communicator is made of.
  std::function<void(int, NcclCommunicatorInit&)> differ = [](int, NcclCommunicatorInit&) {};
};

// The fake machine has as many devices.
NcclRanks FormNcclRanks(const std::shared_ptr<FakeNcclApi>& nccl, int size, Instant deadline,
                        const NcclRanksOptions& options = {});

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_TESTING_NCCL_RANKS_H_
