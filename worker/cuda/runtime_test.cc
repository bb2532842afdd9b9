// The real runtime: without a driver every call reports that; with a GPU every call works.
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/shm/segment.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/driver_functions.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/memory/device_memory.h"
#include "worker/cuda/memory/ipc_memory.h"
#include "worker/cuda/memory/pinned_memory.h"
#include "worker/cuda/memory/shareable_memory.h"
#include "worker/cuda/streams/event.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/streams/stream_flag.h"
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
  const absl::StatusOr<MemoryUse> use = DeviceMemoryUse(0);
  ASSERT_TRUE(use.ok()) << use.status();
  EXPECT_LE(use->free, use->total);
  EXPECT_EQ(CurrentDevice::Set(1000).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status full = DeviceMemory::Allocate(0, 2 * use->total).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted) << full;
  EXPECT_EQ(ShareableMemory::Allocate(0, 2 * use->total).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(GpuTest, AStreamIsWaitedForNoLongerThanTheDeadline) {
  absl::StatusOr<Event> start = Event::Create(0, Event::Timing::kOn);
  absl::StatusOr<Event> end = Event::Create(0, Event::Timing::kOn);
  absl::StatusOr<Stream> other = Stream::Create(0, Stream::Priority::kHigh);
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

TEST_F(GpuTest, SharedMemoryIsPinnedAndItsFlagsHoldStreamsBack) {
  const absl::StatusOr<shm::Segment> segment = shm::Segment::Create("test", 8192);
  ASSERT_TRUE(segment.ok());
  const absl::StatusOr<RegisteredMemory> registered =
      RegisteredMemory::Register(segment->data(), segment->size());
  ASSERT_TRUE(registered.ok()) << registered.status();
  EXPECT_EQ(RegisteredMemory::Register(segment->data(), 10).status().code(),
            absl::StatusCode::kInvalidArgument);
  auto* const flags = reinterpret_cast<uint64_t*>(registered->device_data());
  auto& go = *new (segment->data()) std::atomic<uint64_t>(0);
  auto& done = *new (segment->data() + 8) std::atomic<uint64_t>(0);
  EXPECT_EQ(AwaitFlag(stream_->get(), &flags[0], 7), absl::OkStatus());
  EXPECT_EQ(SetFlag(stream_->get(), &flags[1], 9), absl::OkStatus());
  EXPECT_FALSE(IsIdle(stream_->get()).value());
  EXPECT_EQ(done, 0u);
  go = 7;
  Finish();
  EXPECT_EQ(done, 9u);
}

TEST_F(GpuTest, ShareableMemoryHasSeveralMappings) {
  absl::StatusOr<ShareableMemory> memory = ShareableMemory::Allocate(0, 1000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  absl::StatusOr<ExportedMemory> exported = Export(memory->data() + 100, 100);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->kind, ExportedMemory::Kind::kFd);
  const absl::StatusOr<ImportedMemory> imported = ImportedMemory::Import(*exported);
  ASSERT_TRUE(imported.ok()) << imported.status();
  EXPECT_EQ(Fill(memory->data() + 100, 6, 100, stream_->get()), absl::OkStatus());
  Finish();
  *memory = ShareableMemory();
  std::string bytes(100, '\0');
  EXPECT_EQ(Copy(bytes.data(), imported->data(), 100, stream_->get()), absl::OkStatus());
  Finish();
  EXPECT_EQ(bytes, std::string(100, 6));
  exported->allocation_bytes *= 2;
  EXPECT_EQ(ImportedMemory::Import(*exported).status().code(), absl::StatusCode::kInvalidArgument);
  exported->allocation_bytes /= 2;
  exported->fd = UniqueFd(dup(0));
  EXPECT_FALSE(ImportedMemory::Import(*exported).ok());

  const absl::StatusOr<StreamMemory> pooled = StreamMemory::Allocate(stream_->get(), 100);
  ASSERT_TRUE(pooled.ok());
  EXPECT_EQ(Export(pooled->data(), 100).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cohort::worker::cuda
