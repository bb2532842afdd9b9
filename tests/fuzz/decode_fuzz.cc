// Single requests through the codec alone: many times faster than request_fuzz, and as thorough
// about the bounds of fields. See decode_check.h.
//
//   tests/fuzz/run.sh 60
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "google/protobuf/stubs/logging.h"
#include "tests/fuzz/decode_check.h"
#include "tests/fuzz/mutators/message_mutator.h"
#include "tests/fuzz/scripts/wire_types.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

using namespace cohort::coordinator;  // NOLINT: the entry points must be outside

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  // Most of the log would be lines for strings that are not UTF-8.
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Status status =
      fuzz::CheckDecode(absl::string_view(reinterpret_cast<const char*>(data), size));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    std::abort();
  }
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                          unsigned int seed) {
  fuzz::Random random(seed);
  if (size < 2 || random() % 2 == 0) return LLVMFuzzerMutate(data, size, max_size);
  if (random() % 16 == 0) data[0] = static_cast<uint8_t>(random());
  const auto request = fuzz::NewRequest(static_cast<Method>(data[0] % kMethodCount));
  request->ParsePartialFromArray(data + 2, static_cast<int>(size - 2));
  fuzz::MutateMessage(random, request.get());
  const std::string bytes = request->SerializePartialAsString();
  if (bytes.size() + 2 > max_size) return LLVMFuzzerMutate(data, size, max_size);
  std::memcpy(data + 2, bytes.data(), bytes.size());
  return bytes.size() + 2;
}
