#include "worker/cuda/testing/fake_runtime.h"

#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime_api.h"
#include "gtest/gtest.h"
#include "worker/cuda/testing/stream_gate.h"

namespace cohort::worker::cuda {
namespace {

class FakeRuntimeTest : public testing::Test {
 protected:
  FakeRuntimeTest() {
    ResetFakeRuntime();
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  ~FakeRuntimeTest() override {
    cudaStreamDestroy(stream_);
    ResetFakeRuntime();
  }

  void* Device(size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(cudaMalloc(&memory, bytes), cudaSuccess);
    return memory;
  }
  void* Pinned(size_t bytes) {
    void* memory = nullptr;
    EXPECT_EQ(cudaHostAlloc(&memory, bytes, 0), cudaSuccess);
    return memory;
  }
  cudaEvent_t NewEvent(unsigned int flags = cudaEventDisableTiming) {
    cudaEvent_t event = nullptr;
    EXPECT_EQ(cudaEventCreateWithFlags(&event, flags), cudaSuccess);
    return event;
  }

  cudaStream_t stream_ = nullptr;
};

TEST_F(FakeRuntimeTest, AStreamDoesItsWorkInOrderAndTheCallerGoesOn) {
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream_), cudaSuccess);
  auto* const device = static_cast<char*>(Device(100));
  auto* const host = static_cast<char*>(Pinned(100));
  std::memset(host, 7, 100);
  EXPECT_EQ(cudaMemcpyAsync(device, host, 100, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(device, 9, 1, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemcpyAsync(host, device, 100, cudaMemcpyDefault, stream_), cudaSuccess);
  const cudaEvent_t event = NewEvent();
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess) << "never recorded";
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorNotReady);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaErrorNotReady);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  gate.Open();
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  EXPECT_EQ(host[0], 9);
  EXPECT_EQ(host[99], 7);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(FakeRuntimeTest, AnotherStreamWaitsForAnEvent) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream_), cudaSuccess);
  const cudaEvent_t event = NewEvent();
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess)
      << "a stream that waits for the event goes on waiting";
  EXPECT_EQ(cudaStreamQuery(other), cudaErrorNotReady);
  gate.Open();
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

TEST_F(FakeRuntimeTest, HostFunctionsMayNotCallTheRuntime) {
  std::atomic<cudaError_t> inside{cudaSuccess};
  const auto call = [](void* result) {
    void* memory = nullptr;
    *static_cast<std::atomic<cudaError_t>*>(result) = cudaMalloc(&memory, 1);
  };
  EXPECT_EQ(cudaLaunchHostFunc(stream_, call, &inside), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(inside, cudaErrorNotPermitted);
}

TEST_F(FakeRuntimeTest, EventsMeasureTime) {
  const cudaEvent_t start = NewEvent(cudaEventDefault);
  const cudaEvent_t end = NewEvent(cudaEventDefault);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaEventRecord(start, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(end, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, end), cudaSuccess);
  EXPECT_GE(milliseconds, 0);
  const cudaEvent_t untimed = NewEvent();
  EXPECT_EQ(cudaEventRecord(untimed, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, start, untimed), cudaErrorInvalidResourceHandle);
  for (const cudaEvent_t event : {start, end, untimed}) {
    EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
  EXPECT_EQ(cudaEventDestroy(start), cudaErrorInvalidResourceHandle);
}

TEST_F(FakeRuntimeTest, FreeingWaitsForTheDevice) {
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream_), cudaSuccess);
  char* const device = static_cast<char*>(Device(100));
  EXPECT_EQ(cudaMemsetAsync(device, 1, 100, stream_), cudaSuccess);
  std::atomic<bool> freed{false};
  std::thread free([&] {
    EXPECT_EQ(cudaFree(device), cudaSuccess);
    freed = true;
  });
  EXPECT_FALSE(freed);
  gate.Open();
  free.join();
}

TEST_F(FakeRuntimeTest, CopiesBeyondAnAllocationOrInTheWrongDirectionAreRefused) {
  char* const device = static_cast<char*>(Device(100));
  char* const host = static_cast<char*>(Pinned(200));
  EXPECT_EQ(cudaMemcpyAsync(device, host, 101, cudaMemcpyDefault, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device + 1, host, 100, cudaMemcpyDefault, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device, host, 10, cudaMemcpyDeviceToHost, stream_),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2DAsync(device, 20, host, 20, 21, 2, cudaMemcpyDefault, stream_),
            cudaErrorInvalidPitchValue);
  EXPECT_EQ(cudaMemcpy2DAsync(device, 50, host, 20, 20, 3, cudaMemcpyDefault, stream_),
            cudaErrorInvalidValue);
  for (int i = 0; i < 200; ++i) host[i] = static_cast<char>(i);
  EXPECT_EQ(cudaMemcpy2DAsync(device, 10, host, 50, 5, 4, cudaMemcpyDefault, stream_), cudaSuccess);
  char pageable[5];
  EXPECT_EQ(cudaMemcpyAsync(pageable, device + 30, 5, cudaMemcpyDefault, stream_), cudaSuccess);
  EXPECT_EQ(pageable[4], static_cast<char>(154)) << "there when the call returns";
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
}

TEST_F(FakeRuntimeTest, MemoryEnds) {
  FakeMachine machine;
  machine.memory = 1000;
  machine.pinned_memory = 500;
  ResetFakeRuntime(machine);
  void* const device = Device(900);
  void* more = nullptr;
  EXPECT_EQ(cudaMalloc(&more, 101), cudaErrorMemoryAllocation);
  EXPECT_EQ(FakeDeviceMemoryInUse(), 900u);
  void* host = nullptr;
  EXPECT_EQ(cudaHostAlloc(&host, 501, 0), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaHostAlloc(&host, 500, 0), cudaSuccess);
  EXPECT_EQ(AliveInFakeRuntime(), "1 device allocation, 1 pinned allocation");
  EXPECT_EQ(cudaFreeHost(host), cudaSuccess);
  EXPECT_EQ(cudaFree(device), cudaSuccess);
  EXPECT_EQ(AliveInFakeRuntime(), "");
  EXPECT_EQ(FakeDeviceMemoryInUse(), 0u);
}

TEST_F(FakeRuntimeTest, MemoryOfAStreamIsFreedInItsOrder) {
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream_), cudaSuccess);
  void* memory = nullptr;
  EXPECT_EQ(cudaMallocAsync(&memory, 100, stream_), cudaSuccess);
  EXPECT_EQ(cudaMemsetAsync(memory, 1, 100, stream_), cudaSuccess);
  EXPECT_EQ(cudaFreeAsync(memory, stream_), cudaSuccess);
  EXPECT_EQ(FakeDeviceMemoryInUse(), 100u);
  gate.Open();
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(FakeDeviceMemoryInUse(), 0u);
}

TEST_F(FakeRuntimeTest, ErrorsComeWhenTheyAreAskedFor) {
  FailNextCall("cudaMalloc", cudaErrorLaunchFailure, 1);
  FailNextCall("cudaMalloc", cudaErrorUnknown);
  void* memory = Device(10);
  void* none = nullptr;
  EXPECT_EQ(cudaMalloc(&none, 1), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMalloc(&none, 1), cudaErrorUnknown);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorUnknown);
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
  EXPECT_EQ(cudaGetLastError(), cudaErrorUnknown) << "success leaves it";

  std::atomic<bool> called{false};
  const auto call = [](void* called) { *static_cast<std::atomic<bool>*>(called) = true; };
  StreamGate gate;
  ASSERT_EQ(gate.Close(stream_), cudaSuccess);
  EXPECT_EQ(cudaLaunchHostFunc(stream_, call, &called), cudaSuccess);
  LoseContext();
  gate.Open();
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  EXPECT_EQ(cudaGetLastError(), cudaErrorIllegalAddress);
  ResetFakeRuntime();
  EXPECT_FALSE(called);
  EXPECT_EQ(cudaFree(Device(10)), cudaSuccess);
}

TEST_F(FakeRuntimeTest, AMachineMayHaveNoDeviceOrSeveral) {
  int count = -1;
  FakeMachine machine;
  machine.missing = cudaErrorInsufficientDriver;
  ResetFakeRuntime(machine);
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
  ResetFakeRuntime({0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  ResetFakeRuntime({2});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaSuccess);
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  const cudaEvent_t event = NewEvent();
  EXPECT_EQ(cudaSetDevice(1), cudaSuccess);
  void* const memory = Device(10);
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle) << "of device 0";
  EXPECT_EQ(cudaFree(memory), cudaSuccess);
}

TEST_F(FakeRuntimeTest, ACaptureIsReplayed) {
  cudaStream_t other = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking), cudaSuccess);
  const cudaEvent_t event = NewEvent();
  std::vector<int> order;
  const auto first = [](void* order) { static_cast<std::vector<int>*>(order)->push_back(1); };
  const auto second = [](void* order) { static_cast<std::vector<int>*>(order)->push_back(2); };
  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaLaunchHostFunc(stream_, first, &order), cudaSuccess);
  EXPECT_EQ(cudaEventRecord(event, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamWaitEvent(other, event, 0), cudaSuccess);
  EXPECT_EQ(cudaLaunchHostFunc(other, second, &order), cudaSuccess);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(other), cudaSuccess);
  EXPECT_TRUE(order.empty());
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
  EXPECT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(order, (std::vector<int>{1, 2, 1, 2}));
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);

  EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaErrorStreamCaptureUnsupported);
  EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamQuery(stream_), cudaSuccess);
  EXPECT_EQ(cudaEventDestroy(event), cudaSuccess);
  EXPECT_EQ(cudaStreamDestroy(other), cudaSuccess);
}

}  // namespace
}  // namespace cohort::worker::cuda
