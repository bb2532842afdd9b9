// Proofs that a rank knows the secret of its group, which it does not send.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_LINK_PROOF_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_LINK_PROOF_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/id128.h"

namespace cohort::worker {

// A connection of the mesh begins in plain text, also if TLS follows. The ranks then connect with
// this secret, from which the group's secret cannot be computed.
Id128 SecretBeforeTls(const Id128& secret);

// Tells groups and generations apart. The secret cannot be computed from it.
uint64_t GroupMark(const Id128& secret);

inline constexpr size_t kProofBytes = 32;
using Proof = std::array<char, kProofBytes>;

// HMAC-SHA256 of the text.
Proof ProofOfText(const Id128& secret, absl::string_view text);
// The proof that one end of a connection sends the other inside TLS. It differs for each
// connection and each end, so a rank cannot use the proof that it received. `binding`: of the TLS
// connection (TlsSession::ChannelBinding), so that a relay between two ranks cannot pass proofs on.
Proof LinkProof(const Id128& secret, absl::string_view binding, int from, int to, int stream);
// Takes the same time for any difference.
bool Equal(const Proof& a, const Proof& b);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_LINK_PROOF_H_
