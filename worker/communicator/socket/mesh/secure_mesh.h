// TLS on the connections between all ranks of a group.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_SECURE_MESH_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_SECURE_MESH_H_

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "base/id128.h"
#include "worker/communicator/socket/mesh/mesh.h"

namespace cohort::worker {

struct SecureMeshOptions {
  int rank = 0;
  // The secret of this group and generation; the mesh was connected with SecretBeforeTls(secret).
  Id128 secret;
  std::shared_ptr<SSL_CTX> context;  // for TlsSide::kPeer
  std::vector<int> names;            // by rank, for errors; empty: as they are
  std::vector<std::string> places;   // by rank, for errors: the address
};

// All ranks call it once with their new mesh, whose sockets have TLS afterwards. The rank that
// accepted a connection is its server. The handshakes run at the same time, on the calling thread.
// Then both ends of each connection prove that they belong to the group. Errors name a rank and its
// address: UNAUTHENTICATED (one of the two refuses the certificate of the other), UNAVAILABLE (the
// connection ended), FAILED_PRECONDITION (no TLS, or another group); DEADLINE_EXCEEDED names all
// ranks that were not ready.
absl::Status SecureMesh(Mesh& mesh, const SecureMeshOptions& options, Instant deadline);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_SECURE_MESH_H_
