#include "worker/cuda/streams/stream_flag.h"

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "worker/cuda/memory/pinned_memory.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker::cuda {
namespace {

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(30); }

TEST(StreamFlagTest, StreamsWaitForEachOtherAndForTheHost) {
  ResetFakeRuntime();
  const absl::StatusOr<PinnedMemory> memory = PinnedMemory::Allocate(16);
  absl::StatusOr<Stream> first = Stream::Create(0);
  absl::StatusOr<Stream> second = Stream::Create(0);
  ASSERT_TRUE(memory.ok() && first.ok() && second.ok());
  auto* const flags = reinterpret_cast<uint64_t*>(memory->data());
  auto& host_flag = *new (&flags[0]) std::atomic<uint64_t>(~uint64_t{0});
  auto& done = *new (&flags[1]) std::atomic<uint64_t>(0);
  // The numbers wrap around.
  EXPECT_EQ(AwaitFlag(second->get(), &flags[1], 1), absl::OkStatus());
  EXPECT_EQ(AwaitFlag(first->get(), &flags[0], 1), absl::OkStatus());
  EXPECT_EQ(SetFlag(first->get(), &flags[1], 5), absl::OkStatus());
  EXPECT_FALSE(IsIdle(first->get()).value());
  EXPECT_FALSE(IsIdle(second->get()).value());
  host_flag = 1;
  EXPECT_EQ(Synchronize(second->get(), Soon()), absl::OkStatus());
  EXPECT_EQ(done, 5u);
  EXPECT_EQ(SetFlag(first->get(), flags + 2, 1).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(AwaitFlag(first->get(), nullptr, 1).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace cohort::worker::cuda
