// The first bytes of a connection between two ranks. Each end proves that it knows the secret of
// the group by a digest of it with the other's challenge; the secret never travels.
//
//   the rank that connects                  the rank that accepts
//     Hello, with a challenge          ->
//                                      <-   Welcome, with a challenge and a proof
//     Proof                            ->
//
// Numbers are in the host's byte order; a host of another order has another magic, and is refused.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_HANDSHAKE_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_HANDSHAKE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/id128.h"
#include "worker/communicator/socket/mesh/link_proof.h"

namespace cohort::worker {

inline constexpr uint64_t kHandshakeMagic = 0x434F484F52545331;  // "COHORTS1"
inline constexpr uint32_t kHandshakeVersion = 4;

// The values that a rank of the group expects of a connection.
struct Membership {
  int rank = 0;
  int size = 0;
  int streams = 0;  // connections between two ranks
  Id128 secret;     // of this group and generation
};

// From the rank that connects.
struct Hello {
  uint64_t magic = kHandshakeMagic;
  uint32_t version = kHandshakeVersion;
  uint32_t size = 0;
  uint64_t group = 0;  // GroupMark of the secret
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t stream = 0;
  uint32_t streams = 0;
  Id128 challenge;
};
static_assert(sizeof(Hello) == 56, "it travels as it is");

// The values travel between ranks: they do not change.
enum class Answer : uint32_t {
  kWelcome = 1,
  kOtherMagic = 2,
  kOtherVersion = 3,
  kOtherGroup = 4,
  kOtherShape = 5,  // of the group, or of the streams
  kDuplicate = 6,   // that stream of that rank is there
};

// From the rank that accepts.
struct Welcome {
  uint64_t magic = kHandshakeMagic;
  uint32_t version = kHandshakeVersion;
  Answer answer = Answer::kWelcome;
  // When the answer is kWelcome.
  Id128 challenge;
  Proof proof = {};
};
static_assert(sizeof(Welcome) == 64, "it travels as it is");

// Each hello has a new challenge.
Hello MakeHello(const Membership& self, int peer, int stream);
// Checks a hello. Ranks connect to those below them.
Answer Judge(const Hello& hello, const Membership& self);
Welcome MakeWelcome(const Membership& self, Answer answer, const Hello& hello);
// Returns why `welcome` does not let this rank in; empty if it does.
absl::string_view RejectionOf(const Welcome& welcome, const Membership& self, const Hello& hello);
// The last message of the rank that connects.
Proof ProofOf(const Membership& self, const Hello& hello, const Welcome& welcome);
absl::string_view Describe(Answer answer);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_HANDSHAKE_H_
