#include "base/access/jwks.h"

#include <openssl/bn.h>
#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/param_build.h>

#include <cstddef>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/access/base64url.h"
#include "base/access/json_fields.h"
#include "base/access/jwt_signature.h"
#include "base/status_macros.h"
#include "nlohmann/json.hpp"

namespace cohort {
namespace {

using nlohmann::json;

constexpr size_t kMaxKeys = 100;
constexpr size_t kMaxIdBytes = 256;
// A longer exponent makes each signature check slow.
constexpr int kMaxExponentBits = 64;

struct Free {
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(EVP_PKEY_CTX* context) const { EVP_PKEY_CTX_free(context); }
  void operator()(OSSL_PARAM_BLD* builder) const { OSSL_PARAM_BLD_free(builder); }
  void operator()(OSSL_PARAM* parameters) const { OSSL_PARAM_free(parameters); }
};
template <typename T>
using Owned = std::unique_ptr<T, Free>;

absl::Status Wrong(absl::string_view why) { return absl::InvalidArgumentError(why); }

// The bytes of a number of the key; empty: it is missing or not base64url.
std::string BytesField(const json& entry, const char* name) {
  return DecodeBase64Url(TextField(entry, name)).value_or("");
}

Owned<BIGNUM> Number(const std::string& bytes) {
  return Owned<BIGNUM>(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                                 static_cast<int>(bytes.size()), nullptr));
}

// Null: OpenSSL does not take the parts as a public key.
std::shared_ptr<EVP_PKEY> MakeKey(const char* type, OSSL_PARAM_BLD* parts) {
  const Owned<OSSL_PARAM> parameters(OSSL_PARAM_BLD_to_param(parts));
  const Owned<EVP_PKEY_CTX> context(EVP_PKEY_CTX_new_from_name(nullptr, type, nullptr));
  EVP_PKEY* made = nullptr;
  const bool ok =
      parameters != nullptr && context != nullptr && EVP_PKEY_fromdata_init(context.get()) == 1 &&
      EVP_PKEY_fromdata(context.get(), &made, EVP_PKEY_PUBLIC_KEY, parameters.get()) == 1;
  ERR_clear_error();
  return ok ? std::shared_ptr<EVP_PKEY>(made, EVP_PKEY_free) : nullptr;
}

absl::StatusOr<std::shared_ptr<EVP_PKEY>> RsaKey(const json& entry) {
  const std::string modulus = BytesField(entry, "n");
  const std::string exponent = BytesField(entry, "e");
  if (modulus.empty() || exponent.empty()) return Wrong("an RSA key needs n and e in base64url");
  if (modulus.size() > kMaxRsaBits / 8 || exponent.size() > kMaxExponentBits / 8) {
    return Wrong(
        absl::StrCat("n has at most ", kMaxRsaBits, " bits, and e at most ", kMaxExponentBits));
  }
  const Owned<BIGNUM> n = Number(modulus);
  const Owned<BIGNUM> e = Number(exponent);
  const int bits = BN_num_bits(n.get());
  if (bits < kMinRsaBits) {
    return Wrong(absl::StrCat("has ", bits, " bits; an RSA key needs at least ", kMinRsaBits));
  }
  if (!BN_is_odd(n.get()) || !BN_is_odd(e.get()) || BN_is_one(e.get())) {
    return Wrong("is not a valid RSA key");
  }
  const Owned<OSSL_PARAM_BLD> parts(OSSL_PARAM_BLD_new());
  if (OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_N, n.get()) != 1 ||
      OSSL_PARAM_BLD_push_BN(parts.get(), OSSL_PKEY_PARAM_RSA_E, e.get()) != 1) {
    return Wrong("is not a valid RSA key");
  }
  std::shared_ptr<EVP_PKEY> key = MakeKey("RSA", parts.get());
  if (key == nullptr) return Wrong("is not a valid RSA key");
  return key;
}

struct Curve {
  const char* group;
  size_t bytes;  // of a coordinate
};

std::optional<Curve> FindCurve(const std::string& name) {
  if (name == "P-256") return Curve{"prime256v1", 32};
  if (name == "P-384") return Curve{"secp384r1", 48};
  return std::nullopt;
}

absl::StatusOr<std::shared_ptr<EVP_PKEY>> EcKey(const json& entry, const Curve& curve) {
  const std::string x = BytesField(entry, "x");
  const std::string y = BytesField(entry, "y");
  if (x.size() != curve.bytes || y.size() != curve.bytes) {
    return Wrong(absl::StrCat("needs x and y of ", curve.bytes, " bytes in base64url"));
  }
  const std::string point = absl::StrCat("\x04", x, y);  // not compressed
  const Owned<OSSL_PARAM_BLD> parts(OSSL_PARAM_BLD_new());
  std::shared_ptr<EVP_PKEY> key;
  if (OSSL_PARAM_BLD_push_utf8_string(parts.get(), OSSL_PKEY_PARAM_GROUP_NAME, curve.group, 0) ==
          1 &&
      OSSL_PARAM_BLD_push_octet_string(parts.get(), OSSL_PKEY_PARAM_PUB_KEY, point.data(),
                                       point.size()) == 1) {
    key = MakeKey("EC", parts.get());
  }
  const Owned<EVP_PKEY_CTX> check(
      key == nullptr ? nullptr : EVP_PKEY_CTX_new_from_pkey(nullptr, key.get(), nullptr));
  const bool valid = check != nullptr && EVP_PKEY_public_check(check.get()) == 1;
  ERR_clear_error();
  if (!valid) return Wrong("is not a point of its curve");
  return key;
}

// Whether the entry is for signatures that Cohort checks.
bool IsForSignatures(const json& entry) {
  const std::string type = TextField(entry, "kty");
  if (type != "RSA" && !(type == "EC" && FindCurve(TextField(entry, "crv")).has_value())) {
    return false;
  }
  if (entry.contains("use") && TextField(entry, "use") != "sig") return false;
  if (entry.contains("alg") && !IsJwtAlgorithm(TextField(entry, "alg"))) return false;
  const auto operations = entry.find("key_ops");
  if (operations == entry.end()) return true;
  for (const json& operation : *operations) {
    if (operation == "verify") return true;
  }
  return false;
}

absl::StatusOr<JwtKey> ReadKey(const json& entry) {
  if (entry.contains("d")) return Wrong("is a private key; expected a public one");
  JwtKey read;
  if (TextField(entry, "kty") == "RSA") {
    COHORT_ASSIGN_OR_RETURN(read.key, RsaKey(entry));
  } else {
    COHORT_ASSIGN_OR_RETURN(read.key, EcKey(entry, *FindCurve(TextField(entry, "crv"))));
  }
  read.algorithm = TextField(entry, "alg");
  if (!read.algorithm.empty() && !MayVerify(read.algorithm, read.key.get())) {
    return Wrong(absl::StrCat("is of a type that does not sign with ", read.algorithm));
  }
  return read;
}

}  // namespace

absl::StatusOr<Jwks> Jwks::Parse(absl::string_view text) {
  COHORT_ASSIGN_OR_RETURN(const json whole, ParseStrictJson(text));
  const auto keys = whole.find("keys");
  if (keys == whole.end() || !keys->is_array()) return Wrong("has no list \"keys\"");
  if (keys->size() > kMaxKeys) return Wrong(absl::StrCat("has more than ", kMaxKeys, " keys"));
  Jwks set;
  size_t number = 0;
  for (const json& entry : *keys) {
    const std::string place = absl::StrCat("key ", ++number, ": ");
    if (!entry.is_object()) return Wrong(place + "is not an object");
    if (!IsForSignatures(entry)) continue;
    const std::string id = TextField(entry, "kid");
    if (id.empty()) return Wrong(place + "has no kid");
    if (id.size() > kMaxIdBytes) {
      return Wrong(absl::StrCat(place, "has a kid of more than ", kMaxIdBytes, " bytes"));
    }
    absl::StatusOr<JwtKey> key = ReadKey(entry);
    if (!key.ok()) return Wrong(absl::StrCat(place, key.status().message()));
    if (!set.keys_.emplace(id, *std::move(key)).second) {
      return Wrong(place + "has the kid of another key");
    }
  }
  return set;
}

const JwtKey* Jwks::Find(absl::string_view id) const {
  const auto found = keys_.find(id);
  return found == keys_.end() ? nullptr : &found->second;
}

}  // namespace cohort
