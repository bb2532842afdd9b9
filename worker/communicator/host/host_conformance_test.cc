#include <unistd.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/shm/heap.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/testing/conformance.h"

namespace cohort::worker {
namespace {

// One heap for all ranks, as for ranks of one process.
shm::Heap& TensorHeap() {
  static shm::Heap* const heap = shm::Heap::Create("test-heap", size_t{1} << 30)->release();
  return *heap;
}

TestMemory& TensorMemory() {
  static auto* const memory = new TestHeap(&TensorHeap());
  return *memory;
}

// Each rank has mappings of its own, as in a process of its own.
Communicators CreateWith(int size, std::optional<int64_t> stream_from) {
  Communicators ranks;
  absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(size);
  EXPECT_TRUE(space.ok()) << space.status();
  const shm::Segment& own = TensorHeap().segment();
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<shm::Segment> other = shm::Segment::Map(dup(own.fd()), own.size());
    EXPECT_TRUE(other.ok()) << other.status();
    RankHeaps heaps(static_cast<size_t>(size), std::make_shared<shm::Segment>(*std::move(other)));
    heaps[static_cast<size_t>(rank)] = {std::shared_ptr<void>(), &own};
    absl::StatusOr<HostSharedMemory> mapped = HostSharedMemory::Attach(dup(space->fd()), size);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    HostMemory memory{*std::move(mapped), std::move(heaps)};
    memory.stream_from = stream_from;
    ranks.push_back(std::make_unique<HostCommunicator>(std::move(memory), rank));
  }
  return ranks;
}

Communicators Create(int size) { return CreateWith(size, std::nullopt); }
// All operations store past the cache, as those that are larger than the last-level cache do.
Communicators CreateStreaming(int size) { return CreateWith(size, 0); }

const std::vector<int> kSizes = {1, 2, 3, 4, 5, 7, 8};

INSTANTIATE_TEST_SUITE_P(Plain, ConformanceTest,
                         ::testing::Values(Backend{"plain", kSizes, Create}));
INSTANTIATE_TEST_SUITE_P(Registered, ConformanceTest,
                         ::testing::Values(Backend{"registered", kSizes, Create, &TensorMemory()}));
INSTANTIATE_TEST_SUITE_P(Streaming, ConformanceTest,
                         ::testing::Values(Backend{
                             "streaming", {2, 3, 8}, CreateStreaming, &TensorMemory()}));
INSTANTIATE_TEST_SUITE_P(Mixed, ConformanceTest,
                         ::testing::Values(Backend{
                             "mixed", {2, 3, 5}, Create, &TensorMemory(), true}));

}  // namespace
}  // namespace cohort::worker
