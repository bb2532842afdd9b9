#include "base/daemon/heap_trim.h"

#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <memory>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace cohort {
namespace {

size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t all = 0, resident = 0;
  file >> all >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(HeapTrimTest, MemoryOfManySmallObjectsGoesBack) {
  constexpr size_t kCount = 100000, kBytes = 1024;
  HeapTrim heap;
  heap.Look();
  std::vector<std::unique_ptr<char[]>> objects;
  for (size_t i = 0; i < kCount; ++i) objects.push_back(std::make_unique<char[]>(kBytes));
  EXPECT_FALSE(heap.Look()) << "nothing is free";
  const size_t before = ResidentBytes();
  // One in a thousand stays, so that the heap cannot just end earlier.
  for (size_t i = 0; i < kCount; ++i) {
    if (i % 1000 != 999) objects[i].reset();
  }
  EXPECT_TRUE(heap.Look());
  EXPECT_LT(ResidentBytes(), before - kCount * kBytes * 8 / 10);
  EXPECT_FALSE(heap.Look()) << "nothing was freed since";
}

TEST(HeapTrimTest, APeakBetweenTwoLooksCounts) {
  constexpr size_t kCount = 100000, kBytes = 1024;
  HeapTrim heap;
  heap.Look();
  const size_t before = ResidentBytes();
  {
    std::vector<std::unique_ptr<char[]>> objects;
    // Written, so that their pages are resident. The last one keeps the heap from ending earlier.
    for (size_t i = 0; i < kCount; ++i) objects.emplace_back(new char[kBytes]());
    static std::unique_ptr<char[]> last;
    last = std::move(objects.back());
  }
  EXPECT_TRUE(heap.Look());
  EXPECT_LT(ResidentBytes(), before + kCount * kBytes * 2 / 10);
  EXPECT_FALSE(heap.Look()) << "nothing was freed since";
}

}  // namespace
}  // namespace cohort
