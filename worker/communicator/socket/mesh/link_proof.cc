#include "worker/communicator/socket/mesh/link_proof.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace cohort::worker {

Proof ProofOfText(const Id128& secret, absl::string_view text) {
  const std::string key = secret.ToBytes();
  Proof proof = {};
  HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()),
       reinterpret_cast<const unsigned char*>(text.data()), text.size(),
       reinterpret_cast<unsigned char*>(proof.data()), nullptr);
  return proof;
}

Id128 SecretBeforeTls(const Id128& secret) {
  const Proof proof = ProofOfText(secret, "before TLS");
  return Id128::FromBytes(absl::string_view(proof.data(), Id128::kBytes));
}

uint64_t GroupMark(const Id128& secret) {
  const Proof proof = ProofOfText(secret, "the group");
  uint64_t mark = 0;
  std::memcpy(&mark, proof.data(), sizeof(mark));
  return mark;
}

Proof LinkProof(const Id128& secret, absl::string_view binding, int from, int to, int stream) {
  return ProofOfText(
      secret, absl::StrCat("rank ", from, " to rank ", to, ", stream ", stream, ", by ", binding));
}

bool Equal(const Proof& a, const Proof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace cohort::worker
