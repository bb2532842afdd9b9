// The first bytes of a connection between two ranks. Both ends prove that they belong to the group.
// Numbers are in the host's byte order; a host of another order has another magic, and is refused.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_HANDSHAKE_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_HANDSHAKE_H_

#include <cstdint>

#include "absl/strings/string_view.h"
#include "base/id128.h"

namespace cohort::worker {

inline constexpr uint64_t kHandshakeMagic = 0x434F484F52545331;  // "COHORTS1"
inline constexpr uint32_t kHandshakeVersion = 3;

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
  uint64_t secret = 0;  // its high half
  uint32_t from = 0;
  uint32_t to = 0;
  uint32_t stream = 0;
  uint32_t streams = 0;
};
static_assert(sizeof(Hello) == 40, "it travels as it is");

// The values travel between ranks: they do not change.
enum class Answer : uint32_t {
  kWelcome = 1,
  kOtherMagic = 2,
  kOtherVersion = 3,
  kOtherSecret = 4,
  kOtherShape = 5,  // of the group, or of the streams
  kDuplicate = 6,   // that stream of that rank is there
};

// From the rank that accepts.
struct Welcome {
  uint64_t magic = kHandshakeMagic;
  uint32_t version = kHandshakeVersion;
  Answer answer = Answer::kWelcome;
  uint64_t secret = 0;  // its low half, when the answer is kWelcome
};
static_assert(sizeof(Welcome) == 24, "it travels as it is");

Hello MakeHello(const Membership& self, int peer, int stream);
// Checks a hello. Ranks connect to those below them.
Answer Judge(const Hello& hello, const Membership& self);
Welcome MakeWelcome(const Membership& self, Answer answer);
// Returns why `welcome` does not let this rank in; empty if it does.
absl::string_view RejectionOf(const Welcome& welcome, const Membership& self);
absl::string_view Describe(Answer answer);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_MESH_HANDSHAKE_H_
