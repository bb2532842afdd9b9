// Whether a rank puts TLS on its connections to ranks of other hosts.
#ifndef COHORT_BASE_RPC_RANK_TLS_H_
#define COHORT_BASE_RPC_RANK_TLS_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tls/tls_context.h"

namespace cohort {

// Whether a rank uses TLS, or why not. The numbers are those of v1::RankTls in rank_info.proto,
// whose header no public header may include.
// kCaAlone: the rank reaches the coordinator by TLS, and has no certificate.
enum class TlsState {
  kUnknown = 0,
  kOn = 1,
  kOff = 2,
  kNoCertificate = 3,
  kNoCa = 4,
  kCaAlone = 5
};

// "has no TLS certificate (COHORT_TLS_CERTIFICATE)": the end of a sentence about a rank.
absl::string_view DescribeTls(TlsState state);

// Whether the rank has no TLS to other ranks although it reaches the coordinator by TLS. It sends
// no plain text then.
inline bool IsTlsElsewhere(TlsState state) {
  return state == TlsState::kCaAlone || state == TlsState::kNoCa;
}

// The TLS of this rank.
struct RankTls {
  TlsState state = TlsState::kOff;
  TlsFiles files;
};

// TLS if COHORT_TLS_CA, COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY name files, unless
// COHORT_RANK_TLS is "off". Errors: INVALID_ARGUMENT (another value than "on" and "off"; "on"
// without the files).
absl::StatusOr<RankTls> RankTlsOfEnvironment();

}  // namespace cohort

#endif  // COHORT_BASE_RPC_RANK_TLS_H_
