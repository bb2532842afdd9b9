#include "worker/communicator/testing/test_allocator.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

shm::Heap* current = nullptr;
bool every_second_only = false;
std::atomic<uint32_t> pieces{0};
// All there have been: memory goes back where it came from.
std::vector<shm::Heap*>& Heaps() {
  static auto* const heaps = new std::vector<shm::Heap*>();
  return *heaps;
}

}  // namespace

void SetTestHeap(shm::Heap* heap, bool every_second) {
  current = heap;
  every_second_only = every_second;
  if (heap != nullptr) Heaps().push_back(heap);
}

void* AllocateForTest(size_t bytes) {
  const bool second = pieces.fetch_add(1) % 2 == 1;
  if (current == nullptr || (every_second_only && second)) return ::operator new(bytes);
  const absl::StatusOr<void*> memory = current->Allocate(bytes);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *memory;
}

void FreeForTest(void* memory) {
  for (shm::Heap* const heap : Heaps()) {
    if (heap->segment().OffsetOf(memory, 0).has_value()) return heap->Free(memory);
  }
  ::operator delete(memory);
}

}  // namespace cohort::worker
