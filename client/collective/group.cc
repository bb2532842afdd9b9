#include "client/collective/group.h"

#include <utility>

#include "base/status_macros.h"
#include "client/collective/recording.h"

namespace cohort::client {

absl::Status Group::Send(const Tensor& tensor, int destination, const CallOptions& options) {
  const TensorTransfer transfer = {true, destination, tensor};
  return Exchange(absl::MakeConstSpan(&transfer, 1), options);
}

absl::Status Group::Receive(const Tensor& tensor, int source, const CallOptions& options) {
  const TensorTransfer transfer = {false, source, tensor};
  return Exchange(absl::MakeConstSpan(&transfer, 1), options);
}

absl::Status Group::Copy(const Tensor& from, const Tensor& to, const CallOptions& options) {
  const TensorCopy copy = {from, to};
  return CopyAll(absl::MakeConstSpan(&copy, 1), options);
}

absl::StatusOr<std::unique_ptr<Sequence>> Group::Record(
    absl::FunctionRef<absl::Status(Group&)> body, const CallOptions& options) {
  COHORT_ASSIGN_OR_RETURN(RecordedCalls calls, RecordCalls(*this, body, options));
  return SequenceOfCalls(*this, std::move(calls));
}

void CountTransfers(absl::Span<const TensorTransfer> transfers, PeerCounters& peers) {
  for (const TensorTransfer& transfer : transfers) {
    const int64_t bytes = transfer.tensor.bytes();
    if (transfer.sends) {
      peers.CountSend(transfer.peer, bytes);
    } else {
      peers.CountReceive(transfer.peer, bytes);
    }
  }
}

}  // namespace cohort::client
