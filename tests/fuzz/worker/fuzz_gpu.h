// The GPU of a worker that is fuzzed: made for tests, so that whoever registers its memory gets as
// far as CUDA's own checks; where there is no toolkit, none.
#ifndef COHORT_TESTS_FUZZ_WORKER_FUZZ_GPU_H_
#define COHORT_TESTS_FUZZ_WORKER_FUZZ_GPU_H_

#include <string>

#include "worker/service/gpu_table.h"

namespace cohort::worker::fuzz {

struct FuzzGpu {
  std::string uuid;
  GpuTable::Opener open;
};

// Once in a process.
FuzzGpu MakeFuzzGpu();

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_FUZZ_GPU_H_
