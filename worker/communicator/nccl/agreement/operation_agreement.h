// Ranks compare the operations that they are about to enqueue, through host memory or sockets. NCCL
// itself does not compare them, and does not name a rank that has not come.
#ifndef COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_OPERATION_AGREEMENT_H_
#define COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_OPERATION_AGREEMENT_H_

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "base/clock.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/nccl/agreement/nccl_operation_log.h"
#include "worker/communicator/nccl/agreement/operation_log_line.h"
#include "worker/communicator/no_message_error.h"

namespace cohort::worker {

// INVALID_ARGUMENT with a mark: names the operations that `rank` and another rank have enqueued.
// They cannot be taken back, so unlike MismatchError this error ends the group.
absl::Status DifferenceError(int rank, const NcclOperationLog::Difference& difference);
bool IsDifference(const absl::Status& status);

// One rank's side. Ranks wait at a barrier for operations, and announce messages by control
// messages; callers that move host memory by the same communicator never see these. One thread at a
// time.
class Agreement {
 public:
  // `host` has the same ranks and outlives it; other callers may use it between the calls.
  // The operations that this rank posts on `operation_log` are compared, too; nothing else there is
  // read.
  Agreement(Communicator* host, const NcclOperationLog* operation_log);

  // All ranks call it. Returns when all have come for the same operation and have posted the same
  // operations before. `shares_device`: other groups use this rank's device. Errors: those of
  // Communicator; DifferenceError, on all ranks.
  absl::Status OnOperation(const OperationLogLine& line, bool shares_device, Instant deadline);
  // Whether any rank's device was shared then: all ranks know the same.
  bool is_device_shared() const { return is_device_shared_; }

  // The two ranks of each message agree on it before it is posted, whatever else they have to agree
  // on. `post` gets the indices in the list of sends and receives that both sides have called and
  // that go together; it does not wait for them. Ranks post the messages between them in the same
  // order.
  //
  // Errors: INVALID_ARGUMENT (some messages differ from the other side's call; they are not posted,
  // and all others are), DEADLINE_EXCEEDED (names the messages whose other side did not come),
  // ABORTED.
  absl::Status OnTransfers(absl::Span<const Transfer> transfers, Instant deadline,
                           absl::FunctionRef<absl::Status(const std::vector<size_t>&)> post);

  // Like Communicator::AwaitMessage, for messages that the sender has called.
  absl::StatusOr<MessageInfo> AwaitOffer(absl::Span<const int> peers, Instant deadline);

 private:
  // The last entry that this rank has posted.
  NcclOperationLog::Entry Last() const;
  // All ranks call it after they found that they have posted different operations.
  absl::Status FindDifference(Instant deadline);

  // One rank announces or answers a message to the other, on MessageChannel::kControl.
  struct ControlMessage {
    uint8_t kind = 0;
    uint8_t type = 0;
    uint8_t same = 0;  // in an answer: the offer is the one that was expected
    uint32_t tag = 0;
    int64_t count = 0;
  };
  static_assert(sizeof(ControlMessage) <= kControlBytes);
  struct Peer {
    std::deque<ControlMessage> offers;  // that no receive has taken yet
    std::deque<size_t> sends;           // without an answer
    std::deque<size_t> receives;        // without an offer
  };

  // Sends a control message. Reads first those that have arrived.
  absl::Status Say(int peer, const ControlMessage& message, Instant deadline);
  // Reads a control message of `peer`, if one has come.
  absl::StatusOr<bool> Listen(int peer, Instant deadline);
  // Reads the control messages of `peer` that have come. Returns whether the next offer is there.
  absl::StatusOr<bool> HasOffer(int peer);
  void OnAnswer(const ControlMessage& answer, int peer);
  // Answers the offers that receives wait for.
  absl::Status AnswerOffers(int peer, Instant deadline);

  Communicator& host_;
  const NcclOperationLog& operation_log_;
  std::vector<Peer> peers_;
  std::vector<int> talks_with_;  // the peers in the list at work
  bool is_device_shared_ = false;
  // The list at work, and the state of its messages.
  absl::Span<const Transfer> transfers_;
  std::vector<size_t> ready_;
  std::vector<std::string> mismatches_;
  NoMessageError no_message_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_NCCL_AGREEMENT_OPERATION_AGREEMENT_H_
