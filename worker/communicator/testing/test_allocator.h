// Memory for tests: of the process, or of a heap that other processes map.
#ifndef COHORT_WORKER_COMMUNICATOR_TESTING_TEST_ALLOCATOR_H_
#define COHORT_WORKER_COMMUNICATOR_TESTING_TEST_ALLOCATOR_H_

#include <cstddef>
#include <new>

#include "base/shm/heap.h"

namespace cohort::worker {

// What is allocated from now on lies there, or every second piece; null: memory of the process.
void SetTestHeap(shm::Heap* heap, bool every_second = false);
void* AllocateForTest(size_t bytes);
// Wherever it lies.
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
