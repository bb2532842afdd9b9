// Controls for tests of a fake machine with GPUs.
#ifndef COHORT_WORKER_CUDA_TESTING_FAKE_RUNTIME_H_
#define COHORT_WORKER_CUDA_TESTING_FAKE_RUNTIME_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "driver_types.h"

namespace cohort::worker::cuda {

// A test that depends on //worker/cuda/testing:fake_runtime, and not on //worker/cuda:runtime, has
// a fake machine. Its devices are host memory, and its streams are threads. It has the functions of
// cuda_runtime_api.h that this project calls, with their rules; the linker reports any other
// function as missing. Each process has its own machine. Thread-safe.
struct FakeMachine {
  int devices = 1;
  // The memory of each device.
  size_t memory = size_t{1} << 30;
  // The host memory that can be pinned.
  size_t pinned_memory = size_t{1} << 30;
  // The result of every call: cudaErrorInsufficientDriver or cudaErrorNoDevice. Without devices it
  // is cudaErrorNoDevice.
  cudaError_t missing = cudaSuccess;
  // Whether devices report that they reach each other's memory. They always do reach it.
  bool peer_access = true;
};

// Starts the machine anew: no injected or sticky error, and all counts are zero. Objects of the
// previous machine must not be used any more. Waits until the streams' threads have ended; if a
// test's host function does not return, this function does not either.
void ResetFakeRuntime(const FakeMachine& machine = {});

// The call of `function` ("cudaMalloc", "cuMemCreate") after the next `calls_before` calls of it
// does nothing and returns `error`. Several failures apply in turn.
void FailNextCall(absl::string_view function, cudaError_t error, int calls_before = 0);

// Simulates an illegal access: every call returns `error` until the next reset, and enqueued work
// is dropped.
void LoseContext(cudaError_t error = cudaErrorIllegalAddress);

// Lists the objects that were neither freed nor destroyed, for people: "2 streams, 1 device
// allocation". Empty if there are no such objects.
std::string AliveInFakeRuntime();

// Returns the memory in use, on all devices together.
size_t FakeDeviceMemoryInUse();

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_TESTING_FAKE_RUNTIME_H_
