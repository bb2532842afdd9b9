// Memory for tests: of the process, of a heap that other processes map, or of any other kind that a
// backend uses.
#ifndef COHORT_WORKER_COMMUNICATOR_TESTING_TEST_ALLOCATOR_H_
#define COHORT_WORKER_COMMUNICATOR_TESTING_TEST_ALLOCATOR_H_

#include <cstddef>
#include <new>

#include "base/shm/heap.h"

namespace cohort::worker {

// The test reads and writes it, and so does the backend.
class TestMemory {
 public:
  virtual ~TestMemory() = default;
  virtual void* Allocate(size_t bytes) = 0;
  // Returns false if the memory is not from here.
  virtual bool Free(void* memory) = 0;
};

class TestHeap final : public TestMemory {
 public:
  explicit TestHeap(shm::Heap* heap) : heap_(*heap) {}
  void* Allocate(size_t bytes) override;
  bool Free(void* memory) override;

 private:
  shm::Heap& heap_;
};

// Memory that is allocated from now on lies in `memory`, or every second piece does; null: memory
// of the process. `memory` lives for ever.
void SetTestMemory(TestMemory* memory, bool every_second = false);
void* AllocateForTest(size_t bytes);
// Frees memory of any of these kinds.
void FreeForTest(void* memory);

template <typename T>
struct TestAllocator {
  using value_type = T;
  TestAllocator() = default;
  template <typename U>
  TestAllocator(const TestAllocator<U>&) {}  // NOLINT: as the standard asks of allocators

  T* allocate(size_t count) { return static_cast<T*>(AllocateForTest(count * sizeof(T))); }
  void deallocate(T* memory, size_t) { FreeForTest(memory); }
  friend bool operator==(const TestAllocator&, const TestAllocator&) { return true; }
  friend bool operator!=(const TestAllocator&, const TestAllocator&) { return false; }
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_TESTING_TEST_ALLOCATOR_H_
