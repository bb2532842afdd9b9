// What ranks say to each other on the first stream of a link. All of it is short, and there is
// always room for it, so that it never waits behind the large data of the other streams.
//
// A frame is a header and perhaps a payload. Numbers are in the byte order of the hosts, which the
// handshake has found to be the same.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_FRAME_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_FRAME_H_

#include <cstdint>
#include <string>

#include "worker/communicator/arguments.h"

namespace cohort::worker {

// The values travel: they do not change.
enum class FrameKind : uint32_t {
  kOperation = 1,  // this rank has come to a collective; payload: its part, when that is small
  kMessage = 2,    // of one rank to another; payload: its elements
  kOffer = 3,      // of a message whose elements will follow on the other streams
  kAccept = 4,     // of the oldest offer: its elements may come
  kRefuse = 5,     // of the oldest offer: the receive was of something else, which is said
  kCredit = 6,     // so many bytes of messages and offers were taken
  kAbort = 7,      // no more comes; payload: why
  kGoodbye = 8,    // no more comes, as it should be
  kNote = 9,       // as kMessage, of notes
  kNoteCredit = 10,
};

// What is called or sent, in a form that two ranks can compare byte by byte.
struct Subject {
  int64_t count = 0;
  uint64_t scale = 0;  // the bits of a double
  uint32_t tag = 0;
  int32_t root = 0;
  uint8_t verb = 0;  // none for messages and notes
  uint8_t type = 0;
  uint8_t op = 0;
  uint8_t unused[5] = {};

  friend bool operator==(const Subject& a, const Subject& b);
  friend bool operator!=(const Subject& a, const Subject& b) { return !(a == b); }
};

struct FrameHeader {
  FrameKind kind = FrameKind::kOperation;
  uint32_t payload_bytes = 0;
  uint64_t number = 0;  // of the operation in the group; of the message between two; of bytes
  Subject subject;
};
static_assert(sizeof(FrameHeader) == 48, "it travels as it is");

inline constexpr int64_t kFrameHeaderBytes = sizeof(FrameHeader);
inline constexpr uint32_t kMaxAbortBytes = 1024;

Subject SubjectOf(const Operation& operation);
Subject SubjectOf(const Transfer& transfer, uint32_t tag);
// Of what another rank has sent, whatever it is.
std::string Describe(const Subject& subject);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_FRAME_H_
