#include "client/parallel/pipeline/ring_shift.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {

namespace {

// The ranks to which this one sends and from which it receives; this rank itself if it does
// neither.
struct RingPeers {
  RingPeers(const client::Group& group, int distance) {
    const int size = group.size();
    const int step = (distance % size + size) % size;
    to = (group.rank() + step) % size;
    from = (group.rank() + size - step) % size;
  }

  int to = 0;
  int from = 0;
};

// Returns the message of rank `from`. After an error of either message no message stays here: the
// next call would return it.
absl::StatusOr<Message> Shift(Messages& messages, const MessageSend& send, int from,
                              const client::CallOptions& options) {
  MessageReceive receive;
  receive.peer = from;
  receive.channel = kRingChannel;
  receive.kept_on_error = false;
  COHORT_ASSIGN_OR_RETURN(std::vector<Message> received,
                          messages.Exchange({send}, {receive}, options));
  return std::move(received[0]);
}

}  // namespace

absl::StatusOr<Tensor> RingShift(Messages& messages, const Tensor& tensor, int distance,
                                 const client::CallOptions& options) {
  client::Group& group = messages.group();
  const auto [to, from] = RingPeers(group, distance);
  if (to == group.rank()) {
    COHORT_ASSIGN_OR_RETURN(const Tensor copy,
                            group.Allocate(tensor.type(), tensor.shape(), tensor.device()));
    COHORT_RETURN_IF_ERROR(group.Copy(tensor, copy, options));
    return copy;
  }
  COHORT_ASSIGN_OR_RETURN(const Message received,
                          Shift(messages, {to, kRingChannel, {"", {tensor}}}, from, options));
  if (received.tensors.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", from, " shifts ", received.tensors.size(), " tensors, not one"));
  }
  return received.tensors[0];
}

absl::StatusOr<Tensor> RingShift(client::Group& group, const Tensor& tensor, int distance,
                                 const client::CallOptions& options) {
  Messages messages(group);
  return RingShift(messages, tensor, distance, options);
}

absl::Status FailRingShift(Messages& messages, const absl::Status& why, int distance,
                           const client::CallOptions& options) {
  const auto [to, from] = RingPeers(messages.group(), distance);
  if (to == messages.group().rank()) return why;
  MessageSend failed;
  failed.peer = to;
  failed.channel = kRingChannel;
  failed.failure = why;
  return Shift(messages, failed, from, options).status();
}

}  // namespace cohort::parallel
