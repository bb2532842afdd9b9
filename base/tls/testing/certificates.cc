#include "base/tls/testing/certificates.h"

#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"

namespace cohort::testing {
namespace {

// A test cannot go on without its certificates.
void Check(bool made, const char* what) {
  if (made) return;
  std::fprintf(stderr, "no %s: %s\n", what, TakeTlsError().c_str());
  std::abort();
}

void AddExtension(X509* certificate, X509* issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str());
  Check(extension != nullptr, "extension");
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

X509* NewCertificate(EVP_PKEY* key, const CertificateNames& names) {
  X509* const made = X509_new();
  Check(made != nullptr, "certificate");
  X509_set_version(made, X509_VERSION_3);
  uint64_t serial = 0;
  RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof(serial));
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(made), serial >> 1);
  X509_gmtime_adj(X509_getm_notBefore(made), absl::ToInt64Seconds(names.begins));
  X509_gmtime_adj(X509_getm_notAfter(made), absl::ToInt64Seconds(names.ends));
  X509_set_pubkey(made, key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(made), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(names.common_name.c_str()), -1,
                             -1, 0);
  return made;
}

template <typename Write>
void WriteFile(const std::string& path, Write write) {
  // A new file each time, as a Secret of Kubernetes or cert-manager puts one there.
  const std::string next = path + ".new";
  std::FILE* const file = std::fopen(next.c_str(), "w");
  Check(file != nullptr && write(file) == 1 && std::fclose(file) == 0, path.c_str());
  Check(std::rename(next.c_str(), path.c_str()) == 0, path.c_str());
}

}  // namespace

CertificateAuthority::CertificateAuthority(std::string folder, const std::string& name)
    : folder_(std::move(folder)),
      path_(absl::StrCat(folder_, "/", name, ".crt")),
      key_(EVP_EC_gen("P-256")) {
  Check(key_ != nullptr, "key");
  CertificateNames names;
  names.common_name = name;
  certificate_.reset(NewCertificate(key_.get(), names));
  X509* const own = certificate_.get();
  X509_set_issuer_name(own, X509_get_subject_name(own));
  AddExtension(own, own, NID_basic_constraints, "critical,CA:TRUE");
  AddExtension(own, own, NID_key_usage, "critical,keyCertSign,cRLSign");
  Check(X509_sign(own, key_.get(), EVP_sha256()) > 0, "signature");
  WriteFile(path_, [own](std::FILE* file) { return PEM_write_X509(file, own); });
}

TlsFiles CertificateAuthority::Sign(const std::string& name, const CertificateNames& names) const {
  const std::unique_ptr<EVP_PKEY, Free> key(EVP_EC_gen("P-256"));
  Check(key != nullptr, "key");
  const std::unique_ptr<X509, Free> made(NewCertificate(key.get(), names));
  X509_set_issuer_name(made.get(), X509_get_subject_name(certificate_.get()));
  AddExtension(made.get(), certificate_.get(), NID_basic_constraints, "critical,CA:FALSE");
  if (!names.alternative_names.empty()) {
    AddExtension(made.get(), certificate_.get(), NID_subject_alt_name, names.alternative_names);
  }
  Check(X509_sign(made.get(), key_.get(), EVP_sha256()) > 0, "signature");
  TlsFiles files{absl::StrCat(folder_, "/", name, ".crt"), absl::StrCat(folder_, "/", name, ".key"),
                 path_};
  WriteFile(files.certificate,
            [&made](std::FILE* file) { return PEM_write_X509(file, made.get()); });
  WriteFile(files.key, [&key](std::FILE* file) {
    return PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
  });
  return files;
}

std::string CertificateAuthority::Revoke(const std::string& name, const std::string& certificate,
                                         absl::Duration ends) const {
  const std::unique_ptr<X509_CRL, void (*)(X509_CRL*)> list(X509_CRL_new(), X509_CRL_free);
  Check(list != nullptr, "list of revoked certificates");
  const std::unique_ptr<ASN1_TIME, void (*)(ASN1_TIME*)> begin(
      X509_gmtime_adj(nullptr, -absl::ToInt64Seconds(absl::Hours(1))), ASN1_TIME_free);
  const std::unique_ptr<ASN1_TIME, void (*)(ASN1_TIME*)> end(
      X509_gmtime_adj(nullptr, absl::ToInt64Seconds(ends)), ASN1_TIME_free);
  X509_CRL_set_version(list.get(), X509_CRL_VERSION_2);
  X509_CRL_set_issuer_name(list.get(), X509_get_subject_name(certificate_.get()));
  X509_CRL_set1_lastUpdate(list.get(), begin.get());
  X509_CRL_set1_nextUpdate(list.get(), end.get());
  if (!certificate.empty()) {
    std::FILE* const file = std::fopen(certificate.c_str(), "r");
    Check(file != nullptr, certificate.c_str());
    const std::unique_ptr<X509, Free> read(PEM_read_X509(file, nullptr, nullptr, nullptr));
    std::fclose(file);
    Check(read != nullptr, certificate.c_str());
    X509_REVOKED* const revoked = X509_REVOKED_new();
    X509_REVOKED_set_serialNumber(revoked, X509_get_serialNumber(read.get()));
    X509_REVOKED_set_revocationDate(revoked, begin.get());
    X509_CRL_add0_revoked(list.get(), revoked);  // takes it
  }
  Check(X509_CRL_sign(list.get(), key_.get(), EVP_sha256()) > 0, "signature");
  std::string path = absl::StrCat(folder_, "/", name, ".crl");
  WriteFile(path, [&list](std::FILE* file) { return PEM_write_X509_CRL(file, list.get()); });
  return path;
}

}  // namespace cohort::testing
