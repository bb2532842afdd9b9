#include "worker/communicator/socket/mesh/link_proof.h"

#include <openssl/crypto.h>
#include <openssl/sha.h>

#include "absl/strings/str_cat.h"

namespace cohort::worker {
namespace {

std::string Digest(const Id128& secret, absl::string_view purpose) {
  static_assert(SHA256_DIGEST_LENGTH == kLinkProofBytes);
  const std::string text = absl::StrCat(secret.ToBytes(), purpose);
  std::string digest(kLinkProofBytes, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(&digest[0]));
  return digest;
}

}  // namespace

Id128 SecretBeforeTls(const Id128& secret) {
  return Id128::FromBytes(Digest(secret, "before TLS").substr(0, Id128::kBytes));
}

std::string LinkProof(const Id128& secret, int from, int to, int stream) {
  return Digest(secret, absl::StrCat("rank ", from, " to rank ", to, ", stream ", stream));
}

bool IsLinkProof(absl::string_view text, const std::string& expected) {
  return text.size() == expected.size() &&
         CRYPTO_memcmp(text.data(), expected.data(), expected.size()) == 0;
}

}  // namespace cohort::worker
