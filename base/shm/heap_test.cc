#include "base/shm/heap.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "absl/status/status.h"
#include "gtest/gtest.h"

namespace cohort::shm {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::unique_ptr<Heap> MakeHeap(size_t capacity) {
  absl::StatusOr<std::unique_ptr<Heap>> heap = Heap::Create("test", capacity);
  EXPECT_TRUE(heap.ok()) << heap.status();
  return std::move(heap).value();
}

// The memory of the heap's pages.
size_t PagesBytes(const Heap& heap) {
  struct stat info = {};
  EXPECT_EQ(fstat(heap.segment().fd(), &info), 0);
  return static_cast<size_t>(info.st_blocks) * 512;
}

TEST(HeapTest, NewMemoryIsVisibleInEarlierMappings) {
  const std::unique_ptr<Heap> heap = MakeHeap(Heap::DefaultCapacity());
  const absl::StatusOr<Segment> peer =
      Segment::Map(dup(heap->segment().fd()), heap->segment().size());
  ASSERT_TRUE(peer.ok()) << peer.status();
  const absl::StatusOr<void*> memory = heap->Allocate(3 * kMiB);
  ASSERT_TRUE(memory.ok());
  std::memset(*memory, 42, 3 * kMiB);
  const std::optional<int64_t> offset = heap->segment().OffsetOf(*memory, 3 * kMiB);
  ASSERT_TRUE(offset.has_value());
  EXPECT_EQ(peer->data()[*offset + 3 * kMiB - 1], 42);
}

TEST(HeapTest, OffsetsAreOfWhatLiesInsideAlone) {
  const std::unique_ptr<Heap> heap = MakeHeap(kMiB);
  char* const begin = heap->segment().data();
  EXPECT_EQ(heap->segment().OffsetOf(begin, kMiB), 0);
  EXPECT_EQ(heap->segment().OffsetOf(begin + kMiB, 0), static_cast<int64_t>(kMiB));
  EXPECT_EQ(heap->segment().OffsetOf(begin + 10, kMiB - 10), 10);
  EXPECT_FALSE(heap->segment().OffsetOf(begin + 10, kMiB - 9).has_value());
  EXPECT_FALSE(heap->segment().OffsetOf(begin - 1, 1).has_value());
  EXPECT_FALSE(heap->segment().OffsetOf(begin, SIZE_MAX).has_value());
  EXPECT_FALSE(heap->segment().OffsetOf(&begin, 1).has_value());
}

// The charge hears of the pages that freed memory keeps, too.
TEST(HeapTest, NoPagesWithoutTheConsentOfTheCharge) {
  int64_t charged = 0;
  const auto charge = [&charged](int64_t more) {
    if (charged + more > int64_t{4 * kMiB}) return absl::ResourceExhaustedError("4 MiB at most");
    charged += more;
    return absl::OkStatus();
  };
  auto heap = Heap::Create("test", 64 * kMiB, kMiB, charge);
  ASSERT_TRUE(heap.ok()) << heap.status();
  absl::StatusOr<void*> large = (*heap)->Allocate(3 * kMiB);
  ASSERT_TRUE(large.ok());
  EXPECT_EQ(charged, 3 * kMiB);
  const absl::Status refused = (*heap)->Allocate(2 * kMiB).status();
  EXPECT_EQ(refused.message(), "4 MiB at most");
  EXPECT_EQ((*heap)->bytes_in_use(), 3 * kMiB);
  const absl::StatusOr<void*> small = (*heap)->Allocate(kMiB);
  ASSERT_TRUE(small.ok());
  EXPECT_EQ(charged, 4 * kMiB);
  (*heap)->Free(*small);  // keeps its pages
  EXPECT_EQ(charged, 4 * kMiB);
  (*heap)->Free(*large);
  EXPECT_EQ(charged, kMiB);
  large = (*heap)->Allocate(4 * kMiB);
  EXPECT_TRUE(large.ok()) << large.status();
}

TEST(HeapTest, ARefusedChargeForgetsNoKeptPages) {
  int64_t charged = 0;
  const auto charge = [&charged](int64_t more) {
    if (charged + more > int64_t{4 * kMiB}) return absl::ResourceExhaustedError("4 MiB at most");
    charged += more;
    return absl::OkStatus();
  };
  auto heap = Heap::Create("test", 64 * kMiB, kMiB, charge);
  ASSERT_TRUE(heap.ok()) << heap.status();
  const absl::StatusOr<void*> small = (*heap)->Allocate(kMiB);
  ASSERT_TRUE(small.ok());
  ASSERT_TRUE((*heap)->Allocate(3 * kMiB).ok());
  (*heap)->Free(*small);  // keeps its pages
  EXPECT_FALSE((*heap)->Allocate(2 * kMiB).ok());
  const absl::StatusOr<void*> again = (*heap)->Allocate(kMiB);
  EXPECT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(charged, 4 * kMiB);
}

TEST(HeapTest, NoTwoOverlapAndAllComesBack) {
  constexpr unsigned kSeed = 20261121;
  std::mt19937 random(kSeed);
  const std::unique_ptr<Heap> heap = MakeHeap(64 * kMiB);
  struct Block {
    char* data;
    size_t size;
    char mark;
  };
  std::vector<Block> blocks;
  for (int step = 0; step < 5000; ++step) {
    if (blocks.size() < 40 && random() % 3 != 0) {
      const size_t size = random() % 8 == 0 ? random() % kMiB : random() % 5000;
      const absl::StatusOr<void*> memory = heap->Allocate(size);
      ASSERT_TRUE(memory.ok()) << memory.status();
      const uintptr_t alignment = size >= (size_t{64} << 10) ? 4096 : 64;
      ASSERT_EQ(reinterpret_cast<uintptr_t>(*memory) % alignment, 0u);
      blocks.push_back({static_cast<char*>(*memory), size, static_cast<char>(step)});
      std::memset(*memory, blocks.back().mark, size);
    } else if (!blocks.empty()) {
      const size_t which = random() % blocks.size();
      const Block block = blocks[which];
      for (size_t i = 0; i < block.size; ++i) {
        ASSERT_EQ(block.data[i], block.mark) << "seed " << kSeed << ", step " << step;
      }
      heap->Free(block.data);
      blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  for (const Block& block : blocks) heap->Free(block.data);
  EXPECT_EQ(heap->bytes_in_use(), 0u);
  // In one piece.
  EXPECT_TRUE(heap->Allocate(64 * kMiB).ok());
}

TEST(HeapTest, RunsOutWithAWord) {
  const std::unique_ptr<Heap> heap = MakeHeap(kMiB);
  EXPECT_EQ(heap->Allocate(2 * kMiB).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(heap->Allocate(SIZE_MAX).status().code(), absl::StatusCode::kResourceExhausted);
  const absl::StatusOr<void*> half = heap->Allocate(kMiB / 2);
  ASSERT_TRUE(half.ok());
  EXPECT_EQ(heap->Allocate(kMiB).status().message(),
            "1048576 bytes of shared memory; of 1048576 are 524288 in use");
  heap->Free(*half);
  EXPECT_TRUE(heap->Allocate(kMiB).ok());
}

TEST(HeapTest, GivesPagesBackBeyondWhatItKeeps) {
  const std::unique_ptr<Heap> heap = MakeHeap(4 * Heap::kKept);
  const size_t part = Heap::kKept / 2;
  std::vector<void*> parts;
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<void*> memory = heap->Allocate(part);
    ASSERT_TRUE(memory.ok());
    // A byte of each page is enough to have it.
    for (size_t at = 0; at < part; at += 4096) static_cast<char*>(*memory)[at] = 1;
    parts.push_back(*memory);
  }
  EXPECT_GE(PagesBytes(*heap), 5 * part);
  for (void* const memory : parts) heap->Free(memory);
  EXPECT_LE(PagesBytes(*heap), Heap::kKept);
  EXPECT_GE(PagesBytes(*heap), Heap::kKept / 2);
}

// Runs `body` in a child of this process, which succeeds if it returns true.
template <typename Body>
void ExpectInChild(const Body& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body() ? 0 : 1);
  int how = -1;
  ASSERT_EQ(waitpid(child, &how, 0), child);
  EXPECT_EQ(how, 0);
}

TEST(HeapTest, AChildFreesNothingOfItsParent) {
  const std::unique_ptr<Heap> heap = MakeHeap(4 * Heap::kKept);
  const size_t size = Heap::kKept + kMiB;  // its pages would go back to the machine
  const absl::StatusOr<void*> memory = heap->Allocate(size);
  ASSERT_TRUE(memory.ok());
  char* const bytes = static_cast<char*>(*memory);
  bytes[0] = bytes[size - 1] = 42;
  ExpectInChild([&] {
    heap->Free(*memory);
    return heap->bytes_in_use() == size;
  });
  EXPECT_EQ(bytes[0], 42);
  EXPECT_EQ(bytes[size - 1], 42);
  heap->Free(*memory);
  EXPECT_EQ(heap->bytes_in_use(), 0u);
}

TEST(HeapTest, AChildAllocatesNothing) {
  const std::unique_ptr<Heap> heap = MakeHeap(kMiB);
  ExpectInChild([&] {
    return heap->Allocate(64).status().code() == absl::StatusCode::kFailedPrecondition;
  });
}

}  // namespace
}  // namespace cohort::shm
