// The real runtime: without a driver every call reports that; with a GPU every call works.
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/driver_functions.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/memory/device_memory.h"
#include "worker/cuda/memory/shareable_memory.h"
#include "worker/cuda/streams/event.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/pinned_memory.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker::cuda {
namespace {

using testing::HasSubstr;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(30); }

TEST(RuntimeTest, WithoutADeviceEverythingSaysSo) {
  const absl::StatusOr<int> count = DeviceCount();
  if (count.ok()) GTEST_SKIP() << "there are " << *count << " GPUs here";
  EXPECT_EQ(count.status().code(), absl::StatusCode::kFailedPrecondition) << count.status();
  EXPECT_THAT(std::string(count.status().message()), HasSubstr("cudaGetDeviceCount: cudaError"));
  for (const absl::Status& status :
       {DescribeDevice(0).status(), CurrentDevice::Set(0).status(), Stream::Create(0).status(),
        Event::Create(0).status(), DeviceMemory::Allocate(0, 100).status(),
        PinnedMemory::Allocate(100).status(), ShareableMemory::Allocate(0, 100).status(),
        GetDriver().status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  }
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::StatusOr<int> count = DeviceCount();
    if (!count.ok()) GTEST_SKIP() << "needs a GPU: " << count.status();
    absl::StatusOr<Stream> stream = Stream::Create(0);
    ASSERT_TRUE(stream.ok()) << stream.status();
    stream_ = std::make_unique<Stream>(*std::move(stream));
  }

  void Finish() { ASSERT_EQ(Synchronize(stream_->get(), Soon()), absl::OkStatus()); }

  std::unique_ptr<Stream> stream_;
};

TEST_F(GpuTest, TheDeviceIsDescribedAndFound) {
  const absl::StatusOr<DeviceInfo> info = DescribeDevice(0);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_FALSE(info->name.empty());
  EXPECT_THAT(info->uuid, testing::StartsWith("GPU-"));
  EXPECT_EQ(FindDevice(info->uuid).value(), 0);
  EXPECT_EQ(CurrentDevice::Set(1000).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status full = DeviceMemory::Allocate(0, 2 * info->memory).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(ShareableMemory::Allocate(0, 2 * info->memory).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(GpuTest, AStreamIsWaitedForNoLongerThanTheDeadline) {
  absl::StatusOr<Event> start = Event::Create(0, Event::Timing::kOn);
  absl::StatusOr<Event> end = Event::Create(0, Event::Timing::kOn);
  absl::StatusOr<Stream> other = Stream::Create(0);
  ASSERT_TRUE(start.ok() && end.ok() && other.ok());
  StreamGate gate;
  EXPECT_EQ(start->Record(stream_->get()), absl::OkStatus());
  ASSERT_EQ(gate.Close(stream_->get()), cudaSuccess);
  EXPECT_EQ(end->Record(stream_->get()), absl::OkStatus());
  EXPECT_EQ(end->HoldBack(other->get()), absl::OkStatus());
  EXPECT_FALSE(IsIdle(stream_->get()).value());
  EXPECT_FALSE(end->Query().value());
  EXPECT_EQ(Synchronize(other->get(), Clock::Steady().Now() + absl::Milliseconds(2)).code(),
            absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  gate.Open();
  EXPECT_EQ(Synchronize(other->get(), Soon()), absl::OkStatus());
  EXPECT_GT(Event::Elapsed(*start, *end).value(), absl::ZeroDuration());
}

TEST_F(GpuTest, MemoryIsCopied) {
  const absl::StatusOr<DeviceMemory> device = DeviceMemory::Allocate(0, 1 << 20);
  const absl::StatusOr<StreamMemory> scratch = StreamMemory::Allocate(stream_->get(), 1 << 20);
  const absl::StatusOr<PinnedMemory> pinned = PinnedMemory::Allocate(1 << 20);
  ASSERT_TRUE(device.ok() && scratch.ok() && pinned.ok());
  std::memset(pinned->data(), 3, pinned->size());
  EXPECT_EQ(Copy(device->data(), pinned->data(), 1 << 20, stream_->get()), absl::OkStatus());
  EXPECT_EQ(Fill(device->data() + 8, 4, 8, stream_->get()), absl::OkStatus());
  // Copies every other 16 bytes.
  EXPECT_EQ(CopyRows(scratch->data(), 16, device->data(), 32, 16, 1 << 15, stream_->get()),
            absl::OkStatus());
  EXPECT_EQ(Copy(pinned->data(), scratch->data(), 1 << 19, stream_->get()), absl::OkStatus());
  Finish();
  EXPECT_EQ(pinned->data()[7], 3);
  EXPECT_EQ(pinned->data()[15], 4);
  EXPECT_EQ(pinned->data()[16], 3);
  EXPECT_EQ(Copy(device->data() + 1, pinned->data(), 1 << 20, stream_->get()).code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(GpuTest, ShareableMemoryIsCopied) {
  const absl::StatusOr<ShareableMemory> memory = ShareableMemory::Allocate(0, 1000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(Fill(memory->data() + 100, 6, 100, stream_->get()), absl::OkStatus());
  std::string bytes(100, '\0');
  EXPECT_EQ(Copy(bytes.data(), memory->data() + 100, 100, stream_->get()), absl::OkStatus());
  Finish();
  EXPECT_EQ(bytes, std::string(100, 6));
}

}  // namespace
}  // namespace cohort::worker::cuda
