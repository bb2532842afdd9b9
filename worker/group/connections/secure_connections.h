// TLS on the sockets between ranks of different hosts.
#ifndef COHORT_WORKER_GROUP_CONNECTIONS_SECURE_CONNECTIONS_H_
#define COHORT_WORKER_GROUP_CONNECTIONS_SECURE_CONNECTIONS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "base/rpc/rank_tls.h"
#include "base/tls/tls_context.h"
#include "worker/group/connections/connections.h"

namespace cohort::worker {

// The state of a rank, as it told the others.
struct PeerTls {
  std::string host_name;
  TlsState state = TlsState::kUnknown;
};

// Whether the ranks use TLS, which all of them do or none. Errors: FAILED_PRECONDITION, the same on
// all ranks. Either some have TLS; it names a rank of each kind, and all that have none. Or no rank
// has, and one reaches the coordinator by TLS; it names that one. `peers`: by rank.
absl::StatusOr<bool> UseTls(absl::string_view group, absl::Span<const PeerTls> peers);

// Puts TLS on the sockets if the ranks use it; all ranks call it. Errors: those of SecureMesh;
// INVALID_ARGUMENT (files that cannot be used).
absl::Status SecureConnections(Connections& connections, const TlsFiles& files, Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_CONNECTIONS_SECURE_CONNECTIONS_H_
