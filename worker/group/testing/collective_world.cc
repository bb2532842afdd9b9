#include "worker/group/testing/collective_world.h"

#include <unistd.h>

#include <thread>
#include <utility>

#include "base/shm/heap.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "worker/communicator/host/host_communicator.h"
#include "worker/communicator/socket/socket_communicator.h"

namespace cohort::worker {
namespace {

using Communicators = std::vector<std::unique_ptr<Communicator>>;

// One heap for all ranks, as for several ranks in one process.
shm::Heap& TestHeap() {
  static shm::Heap* const heap = shm::Heap::Create("test-heap", size_t{1} << 30)->release();
  return *heap;
}

absl::StatusOr<Tensor> FromHeap(DataType type, const Shape& shape) {
  const auto bytes = static_cast<size_t>(ElementCount(shape) * SizeOf(type));
  COHORT_ASSIGN_OR_RETURN(void* const memory, TestHeap().Allocate(bytes));
  std::shared_ptr<const void> owner(
      memory, [](const void* freed) { TestHeap().Free(const_cast<void*>(freed)); });
  return Tensor(memory, type, shape, std::move(owner));
}

absl::StatusOr<Tensor> FromProcess(DataType type, const Shape& shape) {
  return Tensor::Uninitialized(type, shape);
}

// Each rank has mappings of its own, as in a process of its own.
Communicators SharingMemory(int size) {
  Communicators ranks;
  absl::StatusOr<HostSharedMemory> space = HostSharedMemory::Create(size);
  EXPECT_TRUE(space.ok()) << space.status();
  const shm::Segment& own = TestHeap().segment();
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<shm::Segment> other = shm::Segment::Map(dup(own.fd()), own.size());
    EXPECT_TRUE(other.ok()) << other.status();
    RankHeaps heaps(static_cast<size_t>(size), std::make_shared<shm::Segment>(*std::move(other)));
    heaps[static_cast<size_t>(rank)] = {std::shared_ptr<void>(), &own};
    absl::StatusOr<HostSharedMemory> mapped = HostSharedMemory::Attach(dup(space->fd()), size);
    EXPECT_TRUE(mapped.ok()) << mapped.status();
    ranks.push_back(
        std::make_unique<HostCommunicator>(HostMemory{*std::move(mapped), std::move(heaps)}, rank));
  }
  return ranks;
}

// Connects the ranks over loopback.
Communicators BySockets(int size) {
  std::vector<Listener> listeners;
  std::vector<std::string> addresses;
  for (int rank = 0; rank < size; ++rank) {
    absl::StatusOr<Listener> listener = Listener::Open("127.0.0.1", 0);
    EXPECT_TRUE(listener.ok()) << listener.status();
    addresses.push_back(listener->address());
    listeners.push_back(*std::move(listener));
  }
  Communicators ranks(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto index = static_cast<size_t>(rank);
      auto connected =
          SocketCommunicator::Connect(rank, listeners[index], addresses, {1, 2}, {}, Soon());
      EXPECT_TRUE(connected.ok()) << connected.status();
      ranks[index] = *std::move(connected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

}  // namespace

std::string NameOf(Medium medium) {
  switch (medium) {
    case Medium::kHeap:
      return "Heap";
    case Medium::kMixed:
      return "Mixed";
    case Medium::kProcess:
      return "Process";
    case Medium::kSocket:
      return "Socket";
  }
  return "";
}

CollectiveWorld::CollectiveWorld(Medium medium, int size)
    : CollectiveWorld(medium, medium == Medium::kSocket ? BySockets(size) : SharingMemory(size)) {
  for (const auto& communicator : communicators_) {
    collectives_.push_back(std::make_unique<TensorCollectives>(communicator.get(), &location_));
  }
}

CollectiveWorld::CollectiveWorld(Medium medium,
                                 std::vector<std::unique_ptr<Communicator>> communicators)
    : medium_(medium),
      location_(medium == Medium::kHeap || medium == Medium::kMixed ? FromHeap : FromProcess),
      communicators_(std::move(communicators)) {}

Tensor CollectiveWorld::Allocate(DataType type, const Shape& shape) {
  const bool in_heap =
      medium_ == Medium::kHeap || (medium_ == Medium::kMixed && ++allocated_ % 2 == 0);
  const absl::StatusOr<Tensor> tensor = in_heap ? FromHeap(type, shape) : FromProcess(type, shape);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  return *tensor;
}

std::vector<absl::Status> CollectiveWorld::Run(
    const std::function<absl::Status(TensorCollectives&)>& body) {
  std::vector<absl::Status> statuses(collectives_.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < collectives_.size(); ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = body(*collectives_[rank]);
      if (statuses[rank].ok()) statuses[rank] = Await(static_cast<int>(rank));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

void ExpectOk(const std::vector<absl::Status>& statuses, const std::string& what) {
  for (size_t rank = 0; rank < statuses.size(); ++rank) {
    ASSERT_TRUE(statuses[rank].ok()) << what << ", rank " << rank << ": " << statuses[rank];
  }
}

}  // namespace cohort::worker
