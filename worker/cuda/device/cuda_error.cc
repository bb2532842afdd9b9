#include "worker/cuda/device/cuda_error.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "base/text/logging.h"

namespace cohort::worker::cuda {
namespace {

std::string Version(int code) { return absl::StrCat(code / 1000, ".", code % 1000 / 10); }

// Returns advice for the user; empty if the error has no advice.
std::string Advice(cudaError_t error) {
  switch (error) {
    case cudaErrorInsufficientDriver: {
      int driver = 0;
      // Works without a driver, too.
      if (cudaDriverGetVersion(&driver) != cudaSuccess) cudaGetLastError();
      const std::string needed = Version(CUDART_VERSION);
      return driver == 0
                 ? absl::StrCat("no NVIDIA driver is found here: install one for CUDA ", needed,
                                " or newer, or give the container its GPUs and driver")
                 : absl::StrCat("the NVIDIA driver is for CUDA ", Version(driver),
                                ": install one for CUDA ", needed, " or newer");
    }
    case cudaErrorNoDevice:
      return "this process sees no GPU: check nvidia-smi, CUDA_VISIBLE_DEVICES and the devices of "
             "the container";
    case cudaErrorDevicesUnavailable:
      return "another process has the GPU for itself: look at nvidia-smi's compute mode";
    case cudaErrorSystemNotReady:
      return "the machine's GPUs are not ready: look at the fabric manager's service";
    case cudaErrorSystemDriverMismatch:
      return "the driver's parts have different versions: restart the machine, or the container "
             "with the host's driver";
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
      return "look at the MPS daemon and its log";
    default:
      return ContextIsLost(error)
                 ? "the process's CUDA context is lost: only a new process can use "
                   "the GPU"
                 : "";
  }
}

absl::StatusCode CodeOf(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::StatusCode::kResourceExhausted;
    case cudaErrorNotReady:
      return absl::StatusCode::kUnavailable;
    case cudaErrorNotSupported:
    case cudaErrorCallRequiresNewerDriver:
    case cudaErrorSymbolNotFound:
      return absl::StatusCode::kUnimplemented;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidPitchValue:
    case cudaErrorInvalidHostPointer:
    case cudaErrorInvalidDevicePointer:
    case cudaErrorInvalidMemcpyDirection:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
    case cudaErrorHostMemoryAlreadyRegistered:
    case cudaErrorHostMemoryNotRegistered:
      return absl::StatusCode::kInvalidArgument;
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorStubLibrary:
    case cudaErrorInitializationError:
    case cudaErrorDevicesUnavailable:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorCompatNotSupportedOnDevice:
    case cudaErrorMpsConnectionFailed:
    case cudaErrorMpsRpcFailure:
    case cudaErrorMpsServerNotReady:
    case cudaErrorMpsMaxClientsReached:
    case cudaErrorMpsMaxConnectionsReached:
    case cudaErrorDeviceUninitialized:
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorNotPermitted:
    case cudaErrorIllegalState:
    case cudaErrorCudartUnloading:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureMerge:
    case cudaErrorStreamCaptureUnmatched:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureWrongThread:
    case cudaErrorCapturedEvent:
      return absl::StatusCode::kFailedPrecondition;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

bool ContextIsLost(cudaError_t error) {
  switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContained:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorMpsClientTerminated:
    case cudaErrorContextIsDestroyed:
    case cudaErrorExternalDevice:
      return true;
    default:
      return false;
  }
}

absl::Status ToStatus(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  const absl::string_view function = call.substr(0, call.find('('));
  std::string message =
      absl::StrCat(function, ": ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ")");
  const std::string advice = Advice(error);
  if (!advice.empty()) absl::StrAppend(&message, ": ", advice);
  cudaGetLastError();
  return absl::Status(CodeOf(error), message);
}

absl::Status ToStatus(CUresult result, absl::string_view call) {
  return ToStatus(static_cast<cudaError_t>(result), call);
}

absl::Status Of(absl::string_view what, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(what, ": ", status.message()));
}

void LogIfError(absl::string_view what, const absl::Status& status) {
  if (status.ok()) return;
  Log(LogLevel::kWarning, what, {{"error", status.message()}});
}

}  // namespace cohort::worker::cuda
