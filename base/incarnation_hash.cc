#include "base/incarnation_hash.h"

#include <openssl/sha.h>

#include <array>
#include <limits>

namespace cohort {

int64_t IncarnationHash(int64_t incarnation) {
  if (incarnation == 0) return 0;
  std::array<unsigned char, sizeof(incarnation)> bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<unsigned char>(static_cast<uint64_t>(incarnation) >> (8 * i));
  }
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(bytes.data(), bytes.size(), digest.data());
  uint64_t hash = 0;
  for (size_t i = 0; i < sizeof(hash); ++i) hash |= static_cast<uint64_t>(digest[i]) << (8 * i);
  return static_cast<int64_t>(hash & std::numeric_limits<int64_t>::max());
}

}  // namespace cohort
