#include "base/tls/trust_domains.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cohort {
namespace {

void DeleteDomains(void*, void* domains, CRYPTO_EX_DATA*, int, long, void*) {
  delete static_cast<TrustDomains*>(domains);
}

int DomainsIndex() {
  static const int index = X509_STORE_get_ex_new_index(0, nullptr, nullptr, nullptr, DeleteDomains);
  return index;
}

bool Holds(X509_STORE* cas, X509* ca) {
  const STACK_OF(X509_OBJECT)* const objects = X509_STORE_get0_objects(cas);
  for (int i = 0; i < sk_X509_OBJECT_num(objects); ++i) {
    X509* const held = X509_OBJECT_get0_X509(sk_X509_OBJECT_value(objects, i));
    if (held != nullptr && X509_cmp(held, ca) == 0) return true;
  }
  return false;
}

bool IsOf(const PeerCertificate& certificate, absl::string_view trust_domain) {
  return certificate.uris.size() == 1 &&
         absl::StartsWith(certificate.uris.front(), absl::StrCat("spiffe://", trust_domain, "/"));
}

}  // namespace

CaFile ParseCaFile(absl::string_view text) {
  const size_t end = text.find_first_of("/=");
  if (end == absl::string_view::npos || text[end] == '/') return {"", std::string(text)};
  return {std::string(text.substr(0, end)), std::string(text.substr(end + 1))};
}

const TrustDomains* TrustDomains::Of(const X509_STORE* store) {
  return static_cast<const TrustDomains*>(X509_STORE_get_ex_data(store, DomainsIndex()));
}

std::string TrustDomains::Set(X509_STORE* store, const std::vector<CaFile>& files) {
  if (std::all_of(files.begin(), files.end(),
                  [](const CaFile& file) { return file.trust_domain.empty(); })) {
    return "";
  }
  auto domains = std::make_unique<TrustDomains>();
  for (const CaFile& file : files) {
    Bundle bundle{file.trust_domain, {X509_STORE_new(), X509_STORE_free}};
    if (bundle.cas == nullptr ||
        X509_STORE_load_locations(bundle.cas.get(), file.path.c_str(), nullptr) != 1) {
      return file.path;
    }
    domains->bundles_.push_back(std::move(bundle));
  }
  X509_STORE_set_ex_data(store, DomainsIndex(), domains.release());
  return "";
}

std::string TrustDomains::Refusal(X509_STORE_CTX* verified) {
  const TrustDomains* const domains = Of(X509_STORE_CTX_get0_store(verified));
  if (domains == nullptr) return "";
  const STACK_OF(X509)* const chain = X509_STORE_CTX_get0_chain(verified);
  const PeerCertificate certificate = ReadCertificate(sk_X509_value(chain, 0));
  X509* const ca = sk_X509_value(chain, sk_X509_num(chain) - 1);
  std::vector<absl::string_view> allowed;
  for (const Bundle& bundle : domains->bundles_) {
    if (!Holds(bundle.cas.get(), ca)) continue;
    if (bundle.trust_domain.empty() || IsOf(certificate, bundle.trust_domain)) return "";
    allowed.push_back(bundle.trust_domain);
  }
  return absl::StrCat("its CA signs ids of the trust domain ", absl::StrJoin(allowed, " and of "),
                      " alone");
}

void TrustDomains::LimitNames(PeerCertificate* certificate) const {
  for (const Bundle& bundle : bundles_) {
    if (!bundle.trust_domain.empty() && IsOf(*certificate, bundle.trust_domain)) {
      certificate->dns_names.clear();
    }
  }
}

}  // namespace cohort
