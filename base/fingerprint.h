// Hashes that are the same in every process. They detect mistakes, not malice.
#ifndef COHORT_BASE_FINGERPRINT_H_
#define COHORT_BASE_FINGERPRINT_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace cohort {

// FNV-1a with 64 bits.
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

// SplitMix64's finalizer: spreads the bits of one number.
inline uint64_t SplitMix64(uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

}  // namespace cohort

#endif  // COHORT_BASE_FINGERPRINT_H_
