#include "worker/cuda/device/cuda_device.h"

#include <thread>

#include "absl/status/status.h"
#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker::cuda {
namespace {

int Where() {
  int device = -1;
  EXPECT_EQ(cudaGetDevice(&device), cudaSuccess);
  return device;
}

class DeviceTest : public testing::Test {
 protected:
  DeviceTest() { ResetFakeRuntime({3}); }
};

TEST_F(DeviceTest, DescribesEach) {
  EXPECT_EQ(DeviceCount().value(), 3);
  const absl::StatusOr<DeviceInfo> info = DescribeDevice(1);
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->device, 1);
  EXPECT_EQ(info->name, "Fake GPU 1");
  EXPECT_EQ(info->pci_bus_id, "0000:02:00.0");
  EXPECT_EQ(info->uuid, "GPU-636f686f-7274-2066-616b-652067707501");
  EXPECT_EQ(info->memory, size_t{1} << 30);
  EXPECT_EQ(info->compute_capability, std::make_pair(9, 0));
  EXPECT_EQ(DescribeDevice(3).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DeviceTest, ReachesOthersOrNot) {
  EXPECT_EQ(CanAccessPeer(0, 2).value(), true);
  EXPECT_EQ(CanAccessPeer(1, 1).value(), false);
  EXPECT_EQ(CanAccessPeer(0, 3).status().code(), absl::StatusCode::kInvalidArgument);
  FakeMachine machine;
  machine.devices = 2;
  machine.peer_access = false;
  ResetFakeRuntime(machine);
  EXPECT_EQ(CanAccessPeer(0, 1).value(), false);
}

TEST_F(DeviceTest, IsFoundByItsUuid) {
  EXPECT_EQ(FindDevice(DescribeDevice(2)->uuid).value(), 2);
  EXPECT_EQ(FindDevice("GPU-of-another-machine").status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(DeviceTest, AThreadGoesBackToWhereItWas) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  {
    absl::StatusOr<CurrentDevice> first = CurrentDevice::Set(1);
    ASSERT_TRUE(first.ok());
    const CurrentDevice moved = *std::move(first);
    EXPECT_EQ(Where(), 1);
    {
      const absl::StatusOr<CurrentDevice> second = CurrentDevice::Set(2);
      EXPECT_EQ(Where(), 2);
    }
    EXPECT_EQ(Where(), 1);
  }
  EXPECT_EQ(Where(), 0);
  EXPECT_EQ(CurrentDevice::Set(3).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Where(), 0);
}

TEST_F(DeviceTest, DefaultStreamsAreThoseOfTheDeviceOfTheThread) {
  ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
  for (const cudaStream_t stream : {cudaStream_t{nullptr}, cudaStreamLegacy, cudaStreamPerThread}) {
    const auto at_device = AtDeviceOf(stream, 1);
    ASSERT_TRUE(at_device.ok()) << at_device.status();
    EXPECT_EQ(Where(), 1) << stream;
  }
  EXPECT_EQ(Where(), 0);
  cudaStream_t own = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&own, cudaStreamNonBlocking), cudaSuccess);
  const auto stays = AtDeviceOf(own, 1);
  EXPECT_TRUE(stays.ok() && !stays->has_value());
  EXPECT_EQ(Where(), 0);
  EXPECT_EQ(cudaStreamDestroy(own), cudaSuccess);
}

TEST_F(DeviceTest, DoesNotReturnToADeviceThatIsNotInUse) {
  std::thread([] {
    {
      const absl::StatusOr<CurrentDevice> current = CurrentDevice::Set(2);
      EXPECT_TRUE(current.ok());
    }
    EXPECT_EQ(Where(), 2);
  }).join();
}

TEST_F(DeviceTest, WithoutADeviceEveryCallFails) {
  ResetFakeRuntime({0});
  EXPECT_EQ(DeviceCount().status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(DescribeDevice(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(CurrentDevice::Set(0).status().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace cohort::worker::cuda
