#include "client/collective/group.h"

namespace cohort::client {

absl::Status Group::Send(const Tensor& tensor, int destination, const CallOptions& options) {
  const TensorTransfer transfer = {true, destination, tensor};
  return Exchange(absl::MakeConstSpan(&transfer, 1), options);
}

absl::Status Group::Receive(const Tensor& tensor, int source, const CallOptions& options) {
  const TensorTransfer transfer = {false, source, tensor};
  return Exchange(absl::MakeConstSpan(&transfer, 1), options);
}

}  // namespace cohort::client
