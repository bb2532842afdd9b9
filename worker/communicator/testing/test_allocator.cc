#include "worker/communicator/testing/test_allocator.h"

#include <atomic>
#include <cstdint>
#include <set>

#include "gtest/gtest.h"

namespace cohort::worker {
namespace {

TestMemory* current = nullptr;
bool every_second_only = false;
std::atomic<uint32_t> pieces{0};
// All kinds that were set: memory returns to the one that it came from.
std::set<TestMemory*>& Memories() {
  static auto* const memories = new std::set<TestMemory*>();
  return *memories;
}

}  // namespace

void* TestHeap::Allocate(size_t bytes) {
  const absl::StatusOr<void*> memory = heap_.Allocate(bytes);
  EXPECT_TRUE(memory.ok()) << memory.status();
  return *memory;
}

bool TestHeap::Free(void* memory) {
  if (!heap_.segment().OffsetOf(memory, 0).has_value()) return false;
  heap_.Free(memory);
  return true;
}

void SetTestMemory(TestMemory* memory, bool every_second) {
  current = memory;
  every_second_only = every_second;
  if (memory != nullptr) Memories().insert(memory);
}

void* AllocateForTest(size_t bytes) {
  const bool second = pieces.fetch_add(1) % 2 == 1;
  if (current == nullptr || (every_second_only && second)) return ::operator new(bytes);
  return current->Allocate(bytes);
}

void FreeForTest(void* memory) {
  for (TestMemory* const from : Memories()) {
    if (from->Free(memory)) return;
  }
  ::operator delete(memory);
}

}  // namespace cohort::worker
