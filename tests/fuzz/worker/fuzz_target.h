// Defines the entry points of libFuzzer from a check and its samples.
#ifndef COHORT_TESTS_FUZZ_WORKER_FUZZ_TARGET_H_
#define COHORT_TESTS_FUZZ_WORKER_FUZZ_TARGET_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/stubs/logging.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

namespace cohort::worker::fuzz {

inline void AbortUnless(const absl::Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  std::abort();
}

// Returns a sample now and then, so that no corpus needs to hold the samples.
inline size_t MutateOrSample(const std::vector<std::string>& samples, uint8_t* data, size_t size,
                             size_t max_size, unsigned int seed) {
  constexpr unsigned kOneIn = 50;
  std::minstd_rand random(seed);
  const std::string& sample = samples[random() % samples.size()];
  if ((size > 1 && random() % kOneIn != 0) || sample.size() > max_size) {
    return LLVMFuzzerMutate(data, size, max_size);
  }
  std::memcpy(data, sample.data(), sample.size());
  return sample.size();
}

}  // namespace cohort::worker::fuzz

#define COHORT_FUZZ_TARGET(check, samples)                                               \
  extern "C" int LLVMFuzzerInitialize(int*, char***) {                                   \
    google::protobuf::SetLogHandler(nullptr);                                            \
    return 0;                                                                            \
  }                                                                                      \
  extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {              \
    cohort::worker::fuzz::AbortUnless(                                                   \
        check(absl::string_view(reinterpret_cast<const char*>(data), size)));            \
    return 0;                                                                            \
  }                                                                                      \
  extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, \
                                            unsigned int seed) {                         \
    static const auto* const all = new std::vector<std::string>(samples());              \
    return cohort::worker::fuzz::MutateOrSample(*all, data, size, max_size, seed);       \
  }

#endif  // COHORT_TESTS_FUZZ_WORKER_FUZZ_TARGET_H_
