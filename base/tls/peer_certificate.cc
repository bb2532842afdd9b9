#include "base/tls/peer_certificate.h"

#include <openssl/x509v3.h>

#include <memory>

#include "absl/strings/string_view.h"

namespace cohort {
namespace {

// As long as a SPIFFE id may be. Longer names are not read: errors and the journal hold names.
constexpr int kMaxNameBytes = 2048;

std::string TextOf(const ASN1_STRING* text) {
  unsigned char* bytes = nullptr;
  const int size = ASN1_STRING_to_UTF8(&bytes, text);
  if (size < 0) return {};
  std::string copy(reinterpret_cast<const char*>(bytes), static_cast<size_t>(size));
  OPENSSL_free(bytes);
  const bool usable = size <= kMaxNameBytes && copy.find('\0') == std::string::npos;
  return usable ? copy : std::string();
}

}  // namespace

const std::string& PeerCertificate::name() const {
  if (!uris.empty()) return uris.front();
  return dns_names.empty() ? common_name : dns_names.front();
}

absl::Time EndOfCertificate(X509* certificate) {
  tm end = {};
  if (ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &end) != 1) return absl::InfinitePast();
  return absl::FromTM(end, absl::UTCTimeZone());
}

PeerCertificate ReadCertificate(X509* certificate) {
  PeerCertificate read;
  read.not_after = EndOfCertificate(certificate);
  const std::unique_ptr<GENERAL_NAMES, void (*)(GENERAL_NAMES*)> names(
      static_cast<GENERAL_NAMES*>(
          X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)),
      GENERAL_NAMES_free);
  for (int i = 0; names != nullptr && i < sk_GENERAL_NAME_num(names.get()); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names.get(), i);
    if (name->type != GEN_URI && name->type != GEN_DNS) continue;
    std::string text = TextOf(name->d.ia5);
    if (text.empty()) continue;
    (name->type == GEN_URI ? read.uris : read.dns_names).push_back(std::move(text));
  }
  const X509_NAME* const subject = X509_get_subject_name(certificate);
  const int place = X509_NAME_get_index_by_NID(const_cast<X509_NAME*>(subject), NID_commonName, -1);
  if (place >= 0) {
    read.common_name = TextOf(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, place)));
  }
  return read;
}

}  // namespace cohort
