#include "client/parallel/pipeline/ring_shift.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {

absl::StatusOr<Tensor> RingShift(Messages& messages, const Tensor& tensor, int distance,
                                 const client::CallOptions& options) {
  client::Group& group = messages.group();
  const int size = group.size();
  const int step = (distance % size + size) % size;
  if (step == 0) {
    COHORT_ASSIGN_OR_RETURN(const Tensor copy,
                            group.Allocate(tensor.type(), tensor.shape(), tensor.device()));
    COHORT_RETURN_IF_ERROR(group.Copy(tensor, copy, options));
    return copy;
  }
  const int to = (group.rank() + step) % size;
  const int from = (group.rank() + size - step) % size;
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

}  // namespace cohort::parallel
