// Tests of sharing in one process; ipc_process_test.cc has two.
#include "worker/cuda/memory/ipc_memory.h"

#include <fcntl.h>

#include <cstring>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/memory/device_memory.h"
#include "worker/cuda/memory/pinned_memory.h"
#include "worker/cuda/memory/shareable_memory.h"
#include "worker/cuda/streams/stream.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker::cuda {
namespace {

using testing::HasSubstr;

constexpr size_t kUnit = size_t{2} << 20;

class IpcMemoryTest : public testing::Test {
 protected:
  IpcMemoryTest() { ResetFakeRuntime({2}); }
  ~IpcMemoryTest() override {
    EXPECT_EQ(AliveInFakeRuntime(), "");
    EXPECT_EQ(FakeDeviceMemoryInUse(), 0u);
  }
};

TEST_F(IpcMemoryTest, ShareableMemoryIsExportedAndImportedByAFileDescriptor) {
  absl::StatusOr<ShareableMemory> memory = ShareableMemory::Allocate(1, kUnit + 1);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), kUnit + 1);
  EXPECT_EQ(memory->device(), 1);
  EXPECT_EQ(FakeDeviceMemoryInUse(), 2 * kUnit);
  memory->data()[101] = 7;
  const absl::StatusOr<ExportedMemory> exported = Export(memory->data() + 100, 50);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->kind, ExportedMemory::Kind::kFd);
  EXPECT_EQ(exported->device_uuid, DescribeDevice(1)->uuid);
  EXPECT_EQ(exported->allocation_bytes, 2 * kUnit);
  EXPECT_EQ(exported->offset, 100u);
  EXPECT_EQ(exported->bytes, 50u);
  absl::StatusOr<ImportedMemory> imported = ImportedMemory::Import(*exported);
  ASSERT_TRUE(imported.ok()) << imported.status();
  ImportedMemory moved = *std::move(imported);
  EXPECT_EQ(moved.size(), 50u);
  EXPECT_EQ(moved.device(), 1);
  EXPECT_NE(moved.data(), memory->data() + 100);
  EXPECT_EQ(moved.data()[1], 7);
  // The owner may free its memory first.
  *memory = ShareableMemory();
  EXPECT_EQ(moved.data()[1], 7);
}

TEST_F(IpcMemoryTest, MemoryOfCudaMallocIsExportedByALegacyHandle) {
  const absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(1, 1000);
  ASSERT_TRUE(memory.ok());
  const absl::StatusOr<ExportedMemory> exported = Export(memory->data() + 256, 500);
  ASSERT_TRUE(exported.ok()) << exported.status();
  EXPECT_EQ(exported->kind, ExportedMemory::Kind::kLegacy);
  EXPECT_EQ(exported->allocation_bytes, 1000u);
  EXPECT_EQ(exported->offset, 256u);
  EXPECT_EQ(ImportedMemory::Import(*exported).status().code(),
            absl::StatusCode::kFailedPrecondition)
      << "of this process itself";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(IpcMemoryTest, NamesMemoryThatCannotBeExported) {
  const absl::StatusOr<DeviceMemory> memory = DeviceMemory::Allocate(0, 1000);
  const absl::StatusOr<PinnedMemory> pinned = PinnedMemory::Allocate(1000);
  ASSERT_TRUE(memory.ok() && pinned.ok());
  EXPECT_EQ(Export(pinned->data(), 10).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Export(memory->data(), 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Export(memory->data() + 1, 1000).status().code(), absl::StatusCode::kInvalidArgument);
  absl::StatusOr<Stream> stream = Stream::Create(0);
  ASSERT_TRUE(stream.ok());
  {
    const absl::StatusOr<StreamMemory> pooled = StreamMemory::Allocate(stream->get(), 100);
    ASSERT_TRUE(pooled.ok());
    const absl::Status refused = Export(pooled->data(), 100).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("take Group::Allocate or cudaMalloc"));
  }
  EXPECT_EQ(Synchronize(stream->get(), Clock::Steady().Now() + absl::Seconds(30)),
            absl::OkStatus());
  const absl::StatusOr<ShareableMemory> shareable = ShareableMemory::Allocate(0, 10);
  ASSERT_TRUE(shareable.ok());
  FailNextCall("cuMemExportToShareableHandle", cudaErrorInvalidValue);
  const absl::Status refused = Export(shareable->data(), 10).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("other processes cannot open this memory"));
}

TEST_F(IpcMemoryTest, FieldsThatDoNotFitAreRefused) {
  const absl::StatusOr<ShareableMemory> memory = ShareableMemory::Allocate(0, kUnit);
  ASSERT_TRUE(memory.ok());
  const auto import_with = [&](const auto& change) {
    absl::StatusOr<ExportedMemory> exported = Export(memory->data(), 100);
    EXPECT_TRUE(exported.ok());
    change(*exported);
    return ImportedMemory::Import(*exported).status().code();
  };
  constexpr auto kWrong = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(import_with([](ExportedMemory&) {}), absl::StatusCode::kOk);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.bytes = 0; }), kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.bytes = kUnit + 1; }), kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.offset = kUnit; }), kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.offset = ~size_t{0}; }), kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.allocation_bytes = kUnit - 1; }), kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.allocation_bytes = 2 * kUnit; }), kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.fd = UniqueFd(); }), kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.fd = UniqueFd(open("/dev/null", O_RDWR)); }),
            kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.kind = ExportedMemory::Kind::kLegacy; }), kWrong);
  EXPECT_EQ(import_with([](ExportedMemory& m) { m.device_uuid = "GPU-of-another-machine"; }),
            absl::StatusCode::kFailedPrecondition);
}

// Each step of allocating and mapping may fail; no step leaves anything behind.
TEST_F(IpcMemoryTest, FailuresOnTheWayLeaveNothing) {
  for (const char* const step : {"cuMemGetAllocationGranularity", "cuMemCreate",
                                 "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"}) {
    FailNextCall(step, cudaErrorMemoryAllocation);
    const absl::Status failed = ShareableMemory::Allocate(0, 10).status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted) << step;
    EXPECT_THAT(std::string(failed.message()), HasSubstr(step));
    EXPECT_EQ(AliveInFakeRuntime(), "") << step;
  }
  const absl::Status full = ShareableMemory::Allocate(1, size_t{1} << 31).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("shareable memory of 2147483648 bytes on CUDA device 1"));
  EXPECT_EQ(ShareableMemory::Allocate(1, ~size_t{0}).status().code(),
            absl::StatusCode::kResourceExhausted);
  FakeMachine machine;
  machine.exports_fds = false;
  ResetFakeRuntime(machine);
  EXPECT_EQ(ShareableMemory::Allocate(0, 10).status().code(), absl::StatusCode::kUnimplemented);
}

}  // namespace
}  // namespace cohort::worker::cuda
