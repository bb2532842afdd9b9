// Fuzzes the bytes that a client writes to a lane of a whole coordinator. lane_script.h has the
// input's format, and lane_check.h the rules.
//
//   tests/fuzz/run.sh 60 lane_fuzz
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/lane_check.h"
#include "tests/fuzz/lane_mutator.h"
#include "tests/fuzz/lane_script.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

using namespace cohort::coordinator::fuzz;  // NOLINT: the entry points must be outside

namespace {

LaneScript Script(const uint8_t* data, size_t size) {
  return ParseLaneScript(absl::string_view(reinterpret_cast<const char*>(data), size));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // Most of the log would be lines for strings that are not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = CheckLane(Script(data, size));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  Random random(seed);
  if (random() % 4 == 0) return LLVMFuzzerMutate(data, size, max_size);
  LaneScript script = Script(data, size);
  MutateLaneScript(random, &script);
  const std::string bytes = SerializeLaneScript(script);
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
