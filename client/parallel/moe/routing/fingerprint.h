// A hash of the values that ranks compare, the same in every process.
#ifndef COHORT_CLIENT_PARALLEL_MOE_ROUTING_FINGERPRINT_H_
#define COHORT_CLIENT_PARALLEL_MOE_ROUTING_FINGERPRINT_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace cohort::parallel {

// FNV-1a with 64 bits: it detects mistakes, not malice.
class Fingerprint {
 public:
  Fingerprint& Add(absl::string_view text) {
    for (const char byte : text) AddByte(static_cast<uint8_t>(byte));
    return *this;
  }
  Fingerprint& Add(uint64_t number) {
    for (int shift = 0; shift < 64; shift += 8) AddByte(static_cast<uint8_t>(number >> shift));
    return *this;
  }
  uint64_t value() const { return value_; }

 private:
  void AddByte(uint8_t byte) { value_ = (value_ ^ byte) * 0x100000001b3u; }

  uint64_t value_ = 0xcbf29ce484222325u;
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_MOE_ROUTING_FINGERPRINT_H_
