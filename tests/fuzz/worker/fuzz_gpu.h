// The GPU of a fuzzed worker. It is a fake, so that a registration of its memory reaches CUDA's own
// checks; without a toolkit there is no GPU.
#ifndef COHORT_TESTS_FUZZ_WORKER_FUZZ_GPU_H_
#define COHORT_TESTS_FUZZ_WORKER_FUZZ_GPU_H_

#include <string>

#include "worker/daemon/gpu/gpu_table.h"

namespace cohort::worker::fuzz {

struct FuzzGpu {
  std::string uuid;
  GpuTable::Opener open;
};

// Call it once in a process.
FuzzGpu MakeFuzzGpu();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_FUZZ_GPU_H_
