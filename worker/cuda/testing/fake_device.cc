// Devices and errors of the fake runtime.
#include <cstdio>
#include <cstring>

#include "worker/cuda/testing/fake_state.h"

namespace cohort::worker::cuda::fake {
namespace {

bool Exists(int device) {
  MutexLock lock(&state().mutex);
  return device >= 0 && device < state().machine.devices;
}

// An error that every call returns: without a driver the runtime cannot start.
cudaError_t Sticky() {
  MutexLock lock(&state().mutex);
  return state().machine.missing != cudaSuccess ? state().machine.missing : state().sticky;
}

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kTexts[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorDeviceUninitialized, "cudaErrorDeviceUninitialized", "invalid device context"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress",
     "an illegal memory access was encountered"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorNotPermitted, "cudaErrorNotPermitted", "operation not permitted"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

ErrorText TextOf(cudaError_t error) {
  for (const ErrorText& text : kTexts) {
    if (text.error == error) return text;
  }
  return {error, "cudaErrorOfTheFake", "an error that the fake runtime has no words for"};
}

}  // namespace

extern "C" {

const char* cudaGetErrorName(cudaError_t error) { return TextOf(error).name; }
const char* cudaGetErrorString(cudaError_t error) { return TextOf(error).text; }

cudaError_t cudaPeekAtLastError() {
  const cudaError_t sticky = Sticky();
  return sticky != cudaSuccess ? sticky : LastError();
}

cudaError_t cudaGetLastError() {
  const cudaError_t error = cudaPeekAtLastError();
  LastError() = cudaSuccess;
  return error;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return Call(__func__, [&] {
    *version = CUDART_VERSION;
    return cudaSuccess;
  });
}

// Without a driver this returns version 0, and no error.
cudaError_t cudaDriverGetVersion(int* version) {
  MutexLock lock(&state().mutex);
  *version = state().machine.missing == cudaErrorInsufficientDriver ? 0 : CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 0;
  return Call(__func__, [&] {
    MutexLock lock(&state().mutex);
    *count = state().machine.devices;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  return Call(__func__, [&] {
    *device = CurrentDevice();
    return cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return Call(__func__, [&] {
    if (!Exists(device)) return cudaErrorInvalidDevice;
    CurrentDevice() = device;
    MutexLock lock(&state().mutex);
    state().active.insert(device);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Call(__func__, [&] {
    if (!Exists(device)) return cudaErrorInvalidDevice;
    *properties = {};
    std::snprintf(properties->name, sizeof(properties->name), "Fake GPU %d", device);
    std::memcpy(properties->uuid.bytes, "cohort fake gpu", 15);
    properties->uuid.bytes[15] = static_cast<char>(device);
    properties->pciBusID = device + 1;
    properties->major = 9;
    properties->unifiedAddressing = 1;
    MutexLock lock(&state().mutex);
    properties->totalGlobalMem = state().machine.memory;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return Call(__func__, [&] {
    if (!Exists(device)) return cudaErrorInvalidDevice;
    std::snprintf(id, length, "0000:%02X:00.0", device + 1);
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return Call(__func__, [&] {
    if (!Exists(device) || !Exists(peer)) return cudaErrorInvalidDevice;
    MutexLock lock(&state().mutex);
    *can = state().machine.peer_access && device != peer ? 1 : 0;
    return cudaSuccess;
  });
}

}  // extern "C"

}  // namespace cohort::worker::cuda::fake
