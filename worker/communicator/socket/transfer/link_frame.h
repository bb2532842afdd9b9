// The frames that ranks exchange on the first stream of a link. All of them are short and there is
// always room for them, so they never wait behind the large data of the other streams.
//
// A frame is a header and perhaps a payload. Numbers are in the byte order of the hosts, which the
// handshake has found to be the same.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_LINK_FRAME_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_LINK_FRAME_H_

#include <cstdint>
#include <string>

#include "base/collective/collective.h"
#include "worker/communicator/communicator.h"

namespace cohort::worker {

// The values travel between ranks: they do not change.
enum class FrameKind : uint32_t {
  kOperation = 1,  // this rank has come to a collective; payload: its part, if it is small
  kMessage = 2,    // a message from one rank to another; payload: its elements
  kOffer = 3,      // a message whose elements will follow on the other streams
  kAccept = 4,     // accepts the oldest offer: its elements may come
  kReject = 5,     // rejects the oldest offer; key: the message that the receive expected
  kCredit = 6,     // the number of bytes of messages and offers that were taken
  kAbort = 7,      // the last frame after an abort; payload: the cause
  kGoodbye = 8,    // the last frame of a rank that left
  kControl = 9,    // like kMessage, on the control channel
  kControlCredit = 10,
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

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_LINK_FRAME_H_
