#include <unistd.h>

#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

// Each rank with a mapping of its own, as in a process of its own.
Communicators Create(int size) {
  Communicators ranks;
  absl::StatusOr<HostSpace> space = HostSpace::Create(size);
  EXPECT_TRUE(space.ok()) << space.status();
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<HostSpace> own = HostSpace::Attach(dup(space->fd()), size);
    EXPECT_TRUE(own.ok()) << own.status();
    ranks.push_back(std::make_unique<HostCommunicator>(*std::move(own), rank));
  }
  return ranks;
}

INSTANTIATE_TEST_SUITE_P(Host, ConformanceTest,
                         ::testing::Values(Backend{"host", {1, 2, 3, 4, 5, 7, 8}, Create}));

}  // namespace
}  // namespace cohort::worker
