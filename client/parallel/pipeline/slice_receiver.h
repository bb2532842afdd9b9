// The receiving side of one transfer: the expected tensors, the places for them, and the slices.
#ifndef COHORT_CLIENT_PARALLEL_PIPELINE_SLICE_RECEIVER_H_
#define COHORT_CLIENT_PARALLEL_PIPELINE_SLICE_RECEIVER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/call_deadline.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/pipeline/pipeline.h"
#include "client/parallel/pipeline/tensor_slices.h"

namespace cohort::parallel {

class SliceReceiver {
 public:
  // All arguments outlive it. `tensor_group` gathers the slices; null: this rank takes no slices.
  // `receive` has the expected tensors; null: nothing is received.
  SliceReceiver(client::Group& group, client::Group* tensor_group, const PipelineReceive* receive,
                int peer)
      : group_(group), tensor_group_(tensor_group), receive_(receive), peer_(peer) {}

  // The Accept function of the transfer: checks the announced tensors and returns their places.
  absl::StatusOr<std::vector<Tensor>> Place(const std::string& note,
                                            const std::vector<TensorMeta>& metas);
  // Whether Place found no error.
  bool placed() const { return placed_; }
  // The Slices::number of the sender's message.
  uint32_t number() const { return slices_.number; }
  // Returns the whole tensors, once the message has arrived in the places. Members of the tensor
  // group call it for the same tensors. On a stream it returns once the stream has passed the
  // slices.
  absl::StatusOr<Tensors> Finish(const client::CallDeadline& deadline);

 private:
  // Finds the places for a message in which some tensors are slices.
  absl::Status PlaceSlices(const std::vector<TensorMeta>& metas);
  absl::Status CheckExpected(const std::vector<TensorMeta>& metas) const;
  absl::Status CheckCut(const Cut& cut) const;
  // A new tensor, or the cache's.
  absl::StatusOr<Tensor> Room(size_t index, const TensorMeta& meta) const;

  client::Group& group_;
  client::Group* const tensor_group_;
  const PipelineReceive* const receive_;
  const int peer_;
  bool placed_ = false;
  Slices slices_;
  Tensors places_;  // into which the message is received
  Tensors wholes_;  // the results, if some of the places are slices
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_PIPELINE_SLICE_RECEIVER_H_
