#include "base/rpc/rank_tls.h"

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "base/rpc/client_tls.h"

namespace cohort {
namespace {

constexpr char kVariable[] = "COHORT_RANK_TLS";

}  // namespace

absl::string_view DescribeTls(TlsState state) {
  switch (state) {
    case TlsState::kOn:
      return "uses TLS";
    case TlsState::kOff:
      return "has COHORT_RANK_TLS=off";
    case TlsState::kNoCertificate:
      return "has no TLS certificate (COHORT_TLS_CERTIFICATE)";
    case TlsState::kNoCa:
      return "has no CA certificates (COHORT_TLS_CA)";
    case TlsState::kCaAlone:
      return "has CA certificates (COHORT_TLS_CA) and no certificate of its own "
             "(COHORT_TLS_CERTIFICATE)";
    default:
      return "has no TLS in this release";
  }
}

absl::StatusOr<RankTls> RankTlsOfEnvironment() {
  const char* const variable = std::getenv(kVariable);
  const absl::string_view wanted = variable == nullptr ? "" : variable;
  RankTls tls;
  if (wanted == "off") return tls;
  if (!wanted.empty() && wanted != "on") {
    return absl::InvalidArgumentError(
        absl::StrCat(kVariable, " is \"", wanted, "\", expected on or off"));
  }
  tls.files = TlsFilesOfEnvironment();
  const bool has_ca = !tls.files.ca.empty();
  if (tls.files.certificate.empty()) {
    tls.state = has_ca ? TlsState::kCaAlone : TlsState::kNoCertificate;
  } else {
    tls.state = has_ca ? TlsState::kOn : TlsState::kNoCa;
  }
  if (wanted == "on" && tls.state != TlsState::kOn) {
    return absl::InvalidArgumentError(
        absl::StrCat(kVariable, " is on, and this process ", DescribeTls(tls.state)));
  }
  return tls;
}

}  // namespace cohort
