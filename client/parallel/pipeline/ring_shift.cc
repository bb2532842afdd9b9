#include "client/parallel/pipeline/ring_shift.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/call_deadline.h"

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
  COHORT_ASSIGN_OR_RETURN(const std::vector<Message> received,
                          messages.Exchange({{to, kRingChannel, {"", {tensor}}}},
                                            {{from, kRingChannel, nullptr}}, options));
  if (received[0].tensors.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", from, " shifts ", received[0].tensors.size(), " tensors, not one"));
  }
  return received[0].tensors[0];
}

absl::StatusOr<Tensor> RingShift(client::Group& group, const Tensor& tensor, int distance,
                                 const client::CallOptions& options) {
  Messages messages(group);
  return RingShift(messages, tensor, distance, options);
}

absl::Status FailRingShift(Messages& messages, const absl::Status& why, int distance,
                           const client::CallOptions& options) {
  const client::CallDeadline deadline(options);
  const auto [to, from] = RingPeers(messages.group(), distance);
  if (to == messages.group().rank()) return why;
  MessageSend failed;
  failed.peer = to;
  failed.channel = kRingChannel;
  failed.failure = why;
  const absl::Status sent = messages.Exchange({failed}, {}, deadline.Left()).status();
  // A message that stayed here would be taken for that of the next call.
  messages.Receive(from, kRingChannel, deadline.Left()).IgnoreError();
  return sent;
}

}  // namespace cohort::parallel
