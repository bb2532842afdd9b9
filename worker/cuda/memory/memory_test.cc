// Memory of a device and pinned memory, and copies between them.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/memory/device_memory.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/fake_runtime.h"
#include "worker/cuda/testing/pinned_memory.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker::cuda {
namespace {

using testing::HasSubstr;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(30); }

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() {
    FakeMachine machine;
    machine.devices = 2;
    machine.memory = 1 << 20;
    machine.pinned_memory = 1 << 20;
    ResetFakeRuntime(machine);
    absl::StatusOr<Stream> stream = Stream::Create(0);
    EXPECT_TRUE(stream.ok());
    stream_ = std::make_unique<Stream>(*std::move(stream));
  }
  ~MemoryTest() override {
    stream_.reset();
    EXPECT_EQ(AliveInFakeRuntime(), "");
    EXPECT_EQ(FakeDeviceMemoryInUse(), 0u);
  }

  void Finish() { EXPECT_EQ(Synchronize(stream_->get(), Soon()), absl::OkStatus()); }

  std::unique_ptr<Stream> stream_;
};

TEST_F(MemoryTest, DeviceMemoryIsFreedWithItsHolder) {
  absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(1, 1000);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), 1000u);
  EXPECT_EQ(memory->device(), 1);
  const char* const data = memory->data();
  DeviceMemory moved = *std::move(memory);
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(memory->data(), nullptr);
  EXPECT_EQ(FakeDeviceMemoryInUse(), 1000u);
  EXPECT_EQ(moved.Free(), absl::OkStatus());
  EXPECT_EQ(moved.Free(), absl::OkStatus());
  EXPECT_EQ(moved.size(), 0u);
  const absl::StatusOr<DeviceMemory> none = DeviceMemory::Allocate(0, 0);
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->data(), nullptr);
}

TEST_F(MemoryTest, AnAllocationThatFailsNamesItsMemory) {
  const absl::Status full = DeviceMemory::Allocate(1, (1 << 20) + 1).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()), HasSubstr("memory of 1048577 bytes on CUDA device 1: "));
  EXPECT_EQ(DeviceMemory::Allocate(2, 1).status().code(), absl::StatusCode::kInvalidArgument);
  const absl::Status pinned = PinnedMemory::Allocate((1 << 20) + 1).status();
  EXPECT_EQ(pinned.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(pinned.message()), HasSubstr("pinned host memory of 1048577 bytes"));
  EXPECT_EQ(StreamMemory::Allocate(stream_->get(), (1 << 20) + 1).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(MemoryTest, StreamMemoryIsFreedInStreamOrder) {
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream_->get()), cudaSuccess);
  {
    absl::StatusOr<StreamMemory> memory = StreamMemory::Allocate(stream_->get(), 100);
    ASSERT_TRUE(memory.ok()) << memory.status();
    const StreamMemory moved = *std::move(memory);
    EXPECT_EQ(Fill(moved.data(), 1, moved.size(), stream_->get()), absl::OkStatus());
  }
  EXPECT_EQ(FakeDeviceMemoryInUse(), 100u);
  gate.Open();
  Finish();
  EXPECT_EQ(FakeDeviceMemoryInUse(), 0u);
  EXPECT_EQ(StreamMemory::Allocate(stream_->get(), 0)->data(), nullptr);
}

TEST_F(MemoryTest, CopiesFollowStreamOrder) {
  absl::StatusOr<DeviceMemory> device = DeviceMemory::Allocate(0, 1000);
  absl::StatusOr<DeviceMemory> other = DeviceMemory::Allocate(1, 1000);
  absl::StatusOr<PinnedMemory> pinned = PinnedMemory::Allocate(1000);
  ASSERT_TRUE(device.ok() && other.ok() && pinned.ok());
  std::memset(pinned->data(), 3, 1000);
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream_->get()), cudaSuccess);
  EXPECT_EQ(Copy(device->data(), pinned->data(), 1000, stream_->get()), absl::OkStatus());
  EXPECT_EQ(Copy(other->data(), device->data(), 1000, stream_->get()), absl::OkStatus());
  EXPECT_EQ(Fill(other->data() + 10, 4, 10, stream_->get()), absl::OkStatus());
  EXPECT_EQ(Copy(pinned->data(), other->data(), 1000, stream_->get()), absl::OkStatus());
  EXPECT_FALSE(IsIdle(stream_->get()).value());
  gate.Open();
  Finish();
  EXPECT_EQ(pinned->data()[9], 3);
  EXPECT_EQ(pinned->data()[19], 4);
  EXPECT_EQ(pinned->data()[20], 3);
}

TEST_F(MemoryTest, RowsAreCopiedBetweenStrides) {
  absl::StatusOr<DeviceMemory> device = DeviceMemory::Allocate(0, 12);
  ASSERT_TRUE(device.ok());
  const std::string from = "abc.def.ghi.jkl.";
  EXPECT_EQ(CopyRows(device->data(), 3, from.data(), 4, 3, 4, stream_->get()), absl::OkStatus());
  std::string packed(12, '\0');
  EXPECT_EQ(CopyRows(packed.data(), 6, device->data(), 6, 6, 2, stream_->get()), absl::OkStatus());
  Finish();
  EXPECT_EQ(packed, "abcdefghijkl");
  std::string wide(16, '_');
  EXPECT_EQ(CopyRows(wide.data(), 5, device->data(), 3, 3, 3, stream_->get()), absl::OkStatus());
  Finish();
  EXPECT_EQ(wide, "abc__def__ghi___");
}

// A stride has no meaning for a single row.
TEST_F(MemoryTest, RowsTooFarApartForTheDeviceAreCopiedOneByOne) {
  absl::StatusOr<DeviceMemory> device = DeviceMemory::Allocate(0, 3);
  ASSERT_TRUE(device.ok());
  const std::string from = "abc";
  FailNextCall("cudaMemcpy2DAsync", cudaErrorInvalidPitchValue);
  EXPECT_EQ(CopyRows(device->data(), size_t{1} << 31, from.data(), 3, 3, 1, stream_->get()),
            absl::OkStatus());
  std::string back(3, '\0');
  EXPECT_EQ(Copy(back.data(), device->data(), 3, stream_->get()), absl::OkStatus());
  Finish();
  EXPECT_EQ(back, from);
}

TEST_F(MemoryTest, CopiesThatCannotBeAreNamed) {
  absl::StatusOr<DeviceMemory> device = DeviceMemory::Allocate(0, 10);
  ASSERT_TRUE(device.ok());
  std::vector<char> host(100);
  const absl::Status beyond = Copy(device->data(), host.data(), 11, stream_->get());
  EXPECT_EQ(beyond.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(beyond.message()), HasSubstr("copy of 11 bytes from 0x"));
  EXPECT_EQ(CopyRows(device->data(), 5, host.data(), 6, 6, 1, stream_->get()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Fill(device->data() + 1, 0, 10, stream_->get()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Copy(nullptr, nullptr, 0, stream_->get()), absl::OkStatus());
  EXPECT_EQ(CopyRows(nullptr, 0, nullptr, 0, 0, 7, stream_->get()), absl::OkStatus());
  EXPECT_EQ(Fill(nullptr, 0, 0, stream_->get()), absl::OkStatus());
}

}  // namespace
}  // namespace cohort::worker::cuda
