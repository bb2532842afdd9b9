#include "base/access/token_hash.h"

#include <openssl/sha.h>

namespace cohort {

std::string HashToken(absl::string_view token) {
  static_assert(SHA256_DIGEST_LENGTH == kTokenHashBytes);
  std::string hash(kTokenHashBytes, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(token.data()), token.size(),
         reinterpret_cast<unsigned char*>(&hash[0]));
  return hash;
}

}  // namespace cohort
