// Fuzzes sequences of requests to a whole coordinator. request_script.h has the input's format, and
// script_runner.h the rules.
//
//   tests/fuzz/run.sh 60
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/mutators/script_mutator.h"
#include "tests/fuzz/scripts/script_runner.h"

// libFuzzer's own, for changes that know nothing of requests.
extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace {

using namespace cohort::coordinator::fuzz;  // NOLINT: the entry points must be outside

absl::string_view Bytes(const uint8_t* data, size_t size) {
  return absl::string_view(reinterpret_cast<const char*>(data), size);
}

size_t Put(const RequestScript& script, uint8_t* out, size_t max_size) {
  const std::string bytes = SerializeScript(script);
  if (bytes.size() > max_size) return 0;
  std::memcpy(out, bytes.data(), bytes.size());
  return bytes.size();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // Most of the log would be lines for strings that are not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status = RunScript(ParseScript(Bytes(data, size)));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  Random random(seed);
  // Sends arbitrary bytes now and then, as a foreign client may.
  if (random() % 8 == 0) return LLVMFuzzerMutate(data, size, max_size);
  RequestScript script = ParseScript(Bytes(data, size));
  MutateScript(random, &script);
  const size_t result = Put(script, data, max_size);
  return result != 0 ? result : LLVMFuzzerMutate(data, size, max_size);
}

extern "C" size_t LLVMFuzzerCustomCrossOver(const uint8_t* data1, size_t size1,
                                            const uint8_t* data2, size_t size2, uint8_t* out,
                                            size_t max_out_size, unsigned int seed) {
  Random random(seed);
  return Put(
      CrossScripts(random, ParseScript(Bytes(data1, size1)), ParseScript(Bytes(data2, size2))), out,
      max_out_size);
}
