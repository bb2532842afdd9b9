#include "client/parallel/collectives/send_receive.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/results/allocate.h"

namespace cohort::parallel {
namespace {

// The neighbour on a ring; in a group of one the rank itself, which Messages refuses.
int Neighbour(const client::Group& group, int distance) {
  return (group.rank() + distance + group.size()) % group.size();
}

absl::Status CheckExpected(int source, const std::vector<TensorMeta>& metas,
                           const std::optional<TensorSpec>& expected) {
  const std::string from = absl::StrCat("receive from rank ", source, ": ");
  if (metas.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(from, "it sends ", metas.size(), " tensors, and one is expected"));
  }
  if (!expected.has_value()) return absl::OkStatus();
  const TensorMeta wanted = {expected->type, expected->shape, expected->device.is_cuda()};
  if (metas[0] == wanted) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(from, "it sends ", ToString(metas[0]), ", and ",
                                                 ToString(wanted), " is expected"));
}

}  // namespace

absl::Status Send(Messages& messages, const Tensor& tensor, const SendOptions& options) {
  const int peer = options.destination.value_or(Neighbour(messages.group(), 1));
  Message message;
  message.tensors.push_back(tensor);
  return messages.Send(peer, options.channel, message, options.call);
}

absl::StatusOr<Tensor> Receive(Messages& messages, const ReceiveOptions& options) {
  client::Group& group = messages.group();
  const int peer = options.source.value_or(Neighbour(group, -1));
  const Accept accept =
      [&](const std::string& /*note*/,
          const std::vector<TensorMeta>& metas) -> absl::StatusOr<std::vector<Tensor>> {
    COHORT_RETURN_IF_ERROR(CheckExpected(peer, metas, options.expected));
    const Device device = metas[0].on_device ? group.device() : Device::Host();
    COHORT_ASSIGN_OR_RETURN(Tensor tensor, Allocate(group, metas[0].type, metas[0].shape, device));
    return std::vector<Tensor>{std::move(tensor)};
  };
  COHORT_ASSIGN_OR_RETURN(Message message,
                          messages.Receive(peer, options.channel, options.call, accept));
  return std::move(message.tensors[0]);
}

}  // namespace cohort::parallel
