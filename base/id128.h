// A 128-bit identifier: session tokens and operation ids. All zero is the empty id.
#ifndef COHORT_BASE_ID128_H_
#define COHORT_BASE_ID128_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace cohort {

struct Id128 {
  static constexpr size_t kBytes = 16;

  uint64_t high = 0;
  uint64_t low = 0;

  bool empty() const { return high == 0 && low == 0; }

  // `bytes` must hold exactly kBytes.
  static Id128 FromBytes(absl::string_view bytes) {
    Id128 id;
    std::memcpy(&id.high, bytes.data(), sizeof(id.high));
    std::memcpy(&id.low, bytes.data() + sizeof(id.high), sizeof(id.low));
    return id;
  }
  std::string ToBytes() const {
    std::string bytes(kBytes, '\0');
    std::memcpy(&bytes[0], &high, sizeof(high));
    std::memcpy(&bytes[sizeof(high)], &low, sizeof(low));
    return bytes;
  }
  // Hexadecimal, for logs of operation ids. Never log a session.
  std::string ToString() const {
    return absl::StrCat(absl::Hex(high, absl::kZeroPad16), absl::Hex(low, absl::kZeroPad16));
  }

  friend bool operator==(const Id128& a, const Id128& b) {
    return a.high == b.high && a.low == b.low;
  }
  friend bool operator!=(const Id128& a, const Id128& b) { return !(a == b); }
  friend bool operator<(const Id128& a, const Id128& b) {
    return a.high != b.high ? a.high < b.high : a.low < b.low;
  }
  template <typename H>
  friend H AbslHashValue(H hash, const Id128& id) {
    return H::combine(std::move(hash), id.high, id.low);
  }
};

}  // namespace cohort

#endif  // COHORT_BASE_ID128_H_
