// The frames that ranks exchange on the first stream of a link. All of them are short and there is
// always room for them, so they never wait behind the large data of the other streams.
//
// A frame is a header and perhaps a payload. Numbers are in the byte order of the hosts, which the
// handshake has found to be the same.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_FRAME_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_FRAME_H_

#include <cstdint>
#include <string>

#include "base/collective.h"
#include "worker/communicator/communicator.h"

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

struct FrameHeader {
  FrameKind kind = FrameKind::kOperation;
  uint32_t payload_bytes = 0;
  uint64_t number = 0;  // of the operation in the group; of the message between two; of bytes
  CollectiveKey key;    // of a collective, a message or an offer
};
static_assert(sizeof(FrameHeader) == 40, "it travels as it is");

inline constexpr int64_t kFrameHeaderBytes = sizeof(FrameHeader);
inline constexpr uint32_t kMaxAbortBytes = 1024;

CollectiveKey KeyOf(const Transfer& transfer);
// A message of another rank, whose key may hold anything. Such as: 10 f32.
std::string DescribeMessage(const CollectiveKey& key);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_FRAME_H_
