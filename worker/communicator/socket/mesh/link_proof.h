// How ranks show that they know the secret of their group, without sending it.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_LINK_PROOF_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_LINK_PROOF_H_

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"
#include "base/id128.h"

namespace cohort::worker {

// A connection of the mesh begins in plain text, also if TLS follows. The ranks then connect with
// this secret, from which the group's secret cannot be computed.
Id128 SecretBeforeTls(const Id128& secret);

inline constexpr size_t kLinkProofBytes = 32;

// The text that one end of a connection sends the other inside TLS. It is another one for each
// connection and each end, so a rank cannot use the text that it received.
std::string LinkProof(const Id128& secret, int from, int to, int stream);
// Takes the same time for any difference.
bool IsLinkProof(absl::string_view text, const std::string& expected);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_LINK_PROOF_H_
