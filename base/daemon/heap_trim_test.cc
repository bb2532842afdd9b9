#include "base/daemon/heap_trim.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/barrier.h"
#include "absl/time/time.h"
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

TEST(HeapTrimTest, LongLooksAreFarApart) {
  EXPECT_EQ(PauseAfterLook(absl::Milliseconds(1)), absl::Seconds(5));
  EXPECT_EQ(PauseAfterLook(absl::Milliseconds(40)), absl::Seconds(12));
  EXPECT_EQ(PauseAfterLook(absl::Seconds(1)), absl::Seconds(30));
}

// The number of arenas of the heap.
size_t Arenas() {
  char* text = nullptr;
  size_t size = 0;
  FILE* const stream = open_memstream(&text, &size);
  malloc_info(0, stream);
  fclose(stream);
  const std::vector<std::string> parts = absl::StrSplit(absl::string_view(text, size), "<heap nr=");
  free(text);
  return parts.size() - 1;
}

// Each keeps free memory that no trim gives back.
TEST(LimitKeptMemoryTest, ManyThreadsShareFewArenas) {
  LimitKeptMemory(int64_t{8} << 30);
  constexpr size_t kThreads = 200;
  // Each is used once, and deleted by the last thread that leaves.
  auto* const all_have_memory = new absl::Barrier(kThreads + 1);
  auto* const end = new absl::Barrier(kThreads + 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kThreads; ++i) {
    threads.emplace_back([=] {
      const auto memory = std::make_unique<char[]>(4096);
      if (all_have_memory->Block()) delete all_have_memory;
      if (end->Block()) delete end;
    });
  }
  if (all_have_memory->Block()) delete all_have_memory;
  EXPECT_LE(Arenas(), size_t{std::thread::hardware_concurrency()} + 1);
  EXPECT_LE(Arenas(), 16);  // 32 MiB each are a sixteenth
  if (end->Block()) delete end;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cohort
