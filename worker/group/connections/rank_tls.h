// TLS on the sockets between ranks of different hosts.
#ifndef COHORT_WORKER_GROUP_CONNECTIONS_RANK_TLS_H_
#define COHORT_WORKER_GROUP_CONNECTIONS_RANK_TLS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/tls/tls_context.h"
#include "worker/group/connections/connections.h"

// Of cohort/v1/rank_info.pb.h, which a public header must not include.
namespace cohort::v1 {
class RankInfo;
enum RankTls : int;
}  // namespace cohort::v1

namespace cohort::worker {

// Whether a rank uses TLS, or why not.
struct RankTls {
  v1::RankTls state = static_cast<v1::RankTls>(2);  // RANK_TLS_OFF
  TlsFiles files;
};

// TLS if COHORT_TLS_CA, COHORT_TLS_CERTIFICATE and COHORT_TLS_KEY name files, unless
// COHORT_RANK_TLS is "off". Errors: INVALID_ARGUMENT (another value than "on" and "off"; "on"
// without the files).
absl::StatusOr<RankTls> RankTlsOfEnvironment();

// Whether the ranks use TLS, which all of them do or none. Errors: FAILED_PRECONDITION, the same on
// all ranks: names a rank of each kind, and all that have no TLS. `infos`: by rank.
absl::StatusOr<bool> UseTls(absl::string_view group, absl::Span<const v1::RankInfo> infos);

// Puts TLS on the sockets if the ranks use it; all ranks call it. Errors: those of SecureMesh;
// INVALID_ARGUMENT (files that cannot be used).
absl::Status SecureConnections(Connections& connections, const TlsFiles& files, Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_CONNECTIONS_RANK_TLS_H_
