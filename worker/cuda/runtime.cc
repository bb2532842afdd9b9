// Makes the linker take the runtime's archive, wherever it meets it: no library here depends on it.
#include "cuda_runtime_api.h"

namespace cohort::worker::cuda {

extern const void* const kRuntime;
const void* const kRuntime = reinterpret_cast<const void*>(&cudaGetDeviceCount);

}  // namespace cohort::worker::cuda
