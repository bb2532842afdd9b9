// A digest of texts that is the same in all processes. It protects against mistakes, not against
// attacks.
#ifndef COHORT_BASE_DIGEST128_H_
#define COHORT_BASE_DIGEST128_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort {

// FNV-1a of 128 bits.
class Digest128 {
 public:
  // The length counts too: "ab" and "c" are not "a" and "bc".
  void Add(absl::string_view text) {
    for (const char c : text) AddByte(static_cast<unsigned char>(c));
    for (size_t length = text.size(), i = 0; i < sizeof(length); ++i, length >>= 8) {
      AddByte(static_cast<unsigned char>(length & 0xFF));
    }
  }
  // 32 hexadecimal digits.
  std::string ToString() const {
    return absl::StrCat(absl::Hex(static_cast<uint64_t>(state_ >> 64), absl::kZeroPad16),
                        absl::Hex(static_cast<uint64_t>(state_), absl::kZeroPad16));
  }

 private:
  using Word = unsigned __int128;

  void AddByte(unsigned char byte) { state_ = (state_ ^ byte) * kPrime; }

  static constexpr Word kPrime = Word{0x0000000001000000u} << 64 | 0x000000000000013Bu;
  Word state_ = Word{0x6C62272E07BB0142u} << 64 | 0x62B821756295C58Du;
};

}  // namespace cohort

#endif  // COHORT_BASE_DIGEST128_H_
