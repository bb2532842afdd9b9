// Messages of tensors between two ranks.
#include <cstdint>
#include <string>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/arguments.h"
#include "worker/group/collectives/tensor_collectives.h"
#include "worker/group/collectives/tensor_parts.h"

namespace cohort::worker {

absl::Status TensorCollectives::Exchange(absl::Span<const client::TensorTransfer> transfers,
                                         Instant deadline) {
  constexpr int64_t kLine = 64;
  absl::InlinedVector<Transfer, 8> flat;
  int64_t bytes = 0;  // of scratch
  for (const client::TensorTransfer& transfer : transfers) {
    const Tensor& tensor = transfer.tensor;
    flat.push_back({transfer.sends, transfer.peer, tensor.data(), tensor.count(), tensor.type()});
    if (tensor.device() != device_) {
      return absl::InvalidArgumentError(absl::StrCat(Describe(flat.back()), ": the tensor is on ",
                                                     tensor.device().ToString(),
                                                     " and should be on ", device_.ToString()));
    }
    if (!transfer.sends && HasRepeats(tensor)) {
      return absl::InvalidArgumentError(
          absl::StrCat(Describe(flat.back()), ": its elements overlap in memory"));
    }
    if (!tensor.contiguous()) bytes += (tensor.bytes() + kLine - 1) / kLine * kLine;
  }
  if (bytes == 0) return communicator_.Exchange(flat, deadline);

  COHORT_RETURN_IF_ERROR(CheckTransfers(flat, rank(), size()));
  COHORT_ASSIGN_OR_RETURN(char* room, scratch_.Take(ContiguousScratch::kInput, bytes));
  for (size_t i = 0; i < flat.size(); ++i) {
    const Tensor& tensor = transfers[i].tensor;
    if (tensor.contiguous()) continue;
    flat[i].data = room;
    room += (tensor.bytes() + kLine - 1) / kLine * kLine;
    if (flat[i].sends) {
      COHORT_RETURN_IF_ERROR(
          location_.Copy(tensor, Flat(flat[i].data, tensor.type(), tensor.shape())));
    }
  }
  const absl::Status status = communicator_.Exchange(flat, deadline);
  // If one message differed from its tensor, the other messages have arrived.
  absl::Status stored;
  if (status.ok() || absl::IsInvalidArgument(status)) {
    for (size_t i = 0; i < flat.size(); ++i) {
      if (!flat[i].sends) stored.Update(Store(flat[i].data, transfers[i].tensor));
    }
    stored.Update(location_.Finish(deadline));
  }
  scratch_.Trim();
  return status.ok() ? stored : status;
}

absl::StatusOr<MessageInfo> TensorCollectives::AwaitMessage(absl::Span<const int> peers,
                                                            Instant deadline) {
  if (peers.empty())
    return absl::InvalidArgumentError("await of a message: the list of ranks is empty");
  for (const int peer : peers) {
    if (peer >= 0 && peer < size() && peer != rank()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("await of a message of rank ", peer, ": ",
                     peer == rank() ? std::string("that is this rank itself")
                                    : absl::StrCat("ranks are 0..", size() - 1)));
  }
  return communicator_.AwaitMessage(peers, deadline);
}

}  // namespace cohort::worker
