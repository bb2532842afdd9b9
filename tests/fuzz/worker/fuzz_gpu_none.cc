#include "tests/fuzz/worker/fuzz_gpu.h"

namespace cohort::worker::fuzz {

FuzzGpu MakeFuzzGpu() {
  return {"none", [](const std::string&) { return absl::FailedPreconditionError("no GPU here"); }};
}

}  // namespace cohort::worker::fuzz
