// Reads numbers and pieces from the bytes of a fuzzer. Every input is valid: a number without bytes
// left is zero.
#ifndef COHORT_TESTS_FUZZ_WORKER_INPUT_H_
#define COHORT_TESTS_FUZZ_WORKER_INPUT_H_

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "absl/strings/string_view.h"

namespace cohort::worker::fuzz {

class Input {
 public:
  explicit Input(absl::string_view bytes) : rest_(bytes) {}

  // Little endian.
  template <typename T>
  T Number() {
    T number = 0;
    const absl::string_view bytes = Bytes(sizeof(T));
    std::memcpy(&number, bytes.data(), bytes.size());
    return number;
  }
  uint8_t Byte() { return Number<uint8_t>(); }
  // At most `size` bytes.
  absl::string_view Bytes(size_t size) {
    const absl::string_view bytes = rest_.substr(0, size);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  absl::string_view Rest() { return Bytes(rest_.size()); }
  bool empty() const { return rest_.empty(); }

 private:
  absl::string_view rest_;
};

}  // namespace cohort::worker::fuzz

#endif  // COHORT_TESTS_FUZZ_WORKER_INPUT_H_
