#include "worker/communicator/single/single_communicator.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

Communicators Create(int) {
  Communicators ranks;
  ranks.push_back(std::make_unique<SingleCommunicator>());
  return ranks;
}

INSTANTIATE_TEST_SUITE_P(Single, ConformanceTest,
                         ::testing::Values(Backend{"single", {1}, Create}));

}  // namespace
}  // namespace cohort::worker
