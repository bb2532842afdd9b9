// The first bytes of connections between ranks: the hello, and the proof behind it.
#ifndef COHORT_TESTS_AMPLIFICATION_MESH_MESSAGES_H_
#define COHORT_TESTS_AMPLIFICATION_MESH_MESSAGES_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/amplification/subject.h"
#include "worker/communicator/socket/mesh/mesh.h"

namespace cohort::amplification {

// The options of a rank in a group of two; `address` is that of rank 0.
worker::MeshOptions MeshOptionsOf(int rank, const std::string& address);

// A peer knows the hello of rank 1, which it has overheard, and not the secret.
std::vector<Message> MeshMessages(int port);

// Connects as rank 1. False: it did not come to a connection in time.
bool ConnectAsRank(int port, absl::Duration timeout = absl::Seconds(20));

}  // namespace cohort::amplification

#endif  // COHORT_TESTS_AMPLIFICATION_MESH_MESSAGES_H_
