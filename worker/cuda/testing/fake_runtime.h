// What tests do to the machine that stands in for one with GPUs.
#ifndef COHORT_WORKER_CUDA_TESTING_FAKE_RUNTIME_H_
#define COHORT_WORKER_CUDA_TESTING_FAKE_RUNTIME_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "driver_types.h"

namespace cohort::worker::cuda {

// A test that depends on //worker/cuda/testing:fake_runtime, and not on //worker/cuda:runtime, has
// a machine whose devices are host memory and whose streams are threads. The functions of
// cuda_runtime_api.h that we call are there with their rules; of others the linker says that they
// are missing. All of this is per process, and thread-safe.
struct FakeMachine {
  int devices = 1;
  // Of each device.
  size_t memory = size_t{1} << 30;
  // That can be pinned, by allocation or registration.
  size_t pinned_memory = size_t{1} << 30;
  // What every call answers: cudaErrorInsufficientDriver, cudaErrorNoDevice. With no devices it is
  // the latter.
  cudaError_t missing = cudaSuccess;
  // Whether devices say that they reach each other's memory. They do in any case.
  bool peer_access = true;
  // Whether memory can be handed to other processes as a file descriptor.
  bool exports_fds = true;
};

// A machine as it was just started: no injected or sticky error, nothing counted. What is alive of
// the one before must not be used any more. Waits until the streams' threads have ended, which is
// for ever when a function that a test gave to a stream does not return.
void ResetFakeRuntime(const FakeMachine& machine = {});

// The call of `function` ("cudaMalloc", "cuMemCreate") after the next `calls_before` of them does
// nothing and answers `error`. Several are taken in turn.
void FailNextCall(absl::string_view function, cudaError_t error, int calls_before = 0);

// As after an illegal access: every call answers `error` until the next reset, and what was
// enqueued is dropped.
void LoseContext(cudaError_t error = cudaErrorIllegalAddress);

// What was made and neither freed nor destroyed, for people: "2 streams, 1 device allocation".
// Empty when there is nothing.
std::string AliveInFakeRuntime();

// How much of the devices' memory is in use, on all of them together.
size_t FakeDeviceMemoryInUse();

}  // namespace cohort::worker::cuda

#endif  // COHORT_WORKER_CUDA_TESTING_FAKE_RUNTIME_H_
