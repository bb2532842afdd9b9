// Fuzzes the bytes that a framed RPC client writes to a whole coordinator. framed_rpc_script.h has
// the input's format, and framed_rpc_check.h the rules.
//
//   tests/fuzz/run.sh 60 framed_rpc_fuzz
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/framed_rpc_check.h"
#include "tests/fuzz/mutators/framed_rpc_mutator.h"
#include "tests/fuzz/scripts/framed_rpc_script.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

using namespace cohort::coordinator::fuzz;  // NOLINT: the entry points must be outside

namespace {

FramedRpcScript Script(const uint8_t* data, size_t size) {
  return ParseFramedRpcScript(absl::string_view(reinterpret_cast<const char*>(data), size));
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // Most of the log would be lines for strings that are not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = CheckFramedRpc(Script(data, size));
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
  FramedRpcScript script = Script(data, size);
  MutateFramedRpcScript(random, &script);
  const std::string bytes = SerializeFramedRpcScript(script);
  if (bytes.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data, bytes.data(), bytes.size());
  return bytes.size();
}
