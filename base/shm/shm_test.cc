#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/shm/futex.h"
#include "base/shm/segment.h"
#include "gtest/gtest.h"

namespace cohort::shm {
namespace {

constexpr size_t kBytes = 10000;

TEST(SegmentTest, TwoMappingsShareTheirBytes) {
  absl::StatusOr<Segment> first = Segment::Create("test", kBytes);
  ASSERT_TRUE(first.ok()) << first.status();
  absl::StatusOr<Segment> second = Segment::Map(dup(first->fd()), kBytes);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_NE(first->data(), second->data());
  EXPECT_EQ(first->data()[kBytes - 1], 0);
  first->data()[kBytes - 1] = 7;
  EXPECT_EQ(second->data()[kBytes - 1], 7);
  const Segment moved = std::move(*first);
  EXPECT_EQ(moved.data()[kBytes - 1], 7);
}

TEST(SegmentTest, ItsSizeCannotBeChanged) {
  const absl::StatusOr<Segment> segment = Segment::Create("test", kBytes);
  ASSERT_TRUE(segment.ok());
  EXPECT_NE(ftruncate(segment->fd(), 10), 0);
  EXPECT_NE(ftruncate(segment->fd(), 2 * kBytes), 0);
}

// To a processor that looks at the middle bits of addresses alone, no two begin at the same place.
TEST(SegmentTest, LargeOnesBeginAtDifferentDistances) {
  std::vector<Segment> segments;
  std::set<uintptr_t> begins;
  for (int i = 0; i < 20; ++i) {
    absl::StatusOr<Segment> segment = Segment::Create("test", size_t{1} << 30);
    ASSERT_TRUE(segment.ok()) << segment.status();
    begins.insert(reinterpret_cast<uintptr_t>(segment->data()) % (size_t{256} << 20));
    segments.push_back(*std::move(segment));
  }
  EXPECT_EQ(begins.size(), segments.size());
}

TEST(SegmentTest, RejectsOtherDescriptors) {
  EXPECT_EQ(Segment::Create("test", 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Segment::Map(-1, kBytes).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Segment::Map(open("/dev/zero", O_RDWR), kBytes).status().code(),
            absl::StatusCode::kInvalidArgument);
  const int loose = memfd_create("loose", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(loose, kBytes), 0);
  EXPECT_EQ(Segment::Map(loose, kBytes).status().code(), absl::StatusCode::kInvalidArgument);
  // Its size may fall, or its seals be of no use since more may come.
  for (const int seals : {F_SEAL_GROW | F_SEAL_SEAL, F_SEAL_SHRINK | F_SEAL_GROW}) {
    const int half = memfd_create("half", MFD_ALLOW_SEALING);
    ASSERT_EQ(ftruncate(half, kBytes), 0);
    ASSERT_EQ(fcntl(half, F_ADD_SEALS, seals), 0);
    const absl::Status refused = Segment::Map(half, kBytes).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(refused.message().find("its size is not sealed"), absl::string_view::npos) << refused;
  }
  const absl::StatusOr<Segment> segment = Segment::Create("test", kBytes);
  EXPECT_EQ(Segment::Map(dup(segment->fd()), kBytes + 1).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Segment::Map(dup(segment->fd()), 0).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(FutexTest, AnotherProcessWakesUs) {
  const absl::StatusOr<Segment> segment = Segment::Create("test", kBytes);
  ASSERT_TRUE(segment.ok());
  auto& word = *new (segment->data()) std::atomic<uint32_t>(0);
  const pid_t child = fork();
  if (child == 0) {
    word.store(1);
    FutexWakeAll(word);
    _exit(0);
  }
  const Instant deadline = Clock::Steady().Now() + absl::Seconds(20);
  while (word.load() == 0 && Clock::Steady().Now() < deadline) FutexWait(word, 0, deadline);
  EXPECT_EQ(word.load(), 1u);
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
}

TEST(FutexTest, ReturnsAtItsDeadlineAndWhenTheWordIsAnother) {
  std::atomic<uint32_t> word(5);
  FutexWait(word, 4, absl::InfiniteFuture());
  const Instant start = Clock::Steady().Now();
  while (Clock::Steady().Now() < start + absl::Milliseconds(5)) {
    FutexWait(word, 5, start + absl::Milliseconds(5));
  }
  FutexWait(word, 5, start);
  EXPECT_LT(Clock::Steady().Now() - start, absl::Seconds(20));
}

}  // namespace
}  // namespace cohort::shm
