// What one stage receives in one transfer: what it expects, where it goes, and what was cut.
#ifndef COHORT_CLIENT_PARALLEL_PIPELINE_RECEPTION_H_
#define COHORT_CLIENT_PARALLEL_PIPELINE_RECEPTION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/collective/group.h"
#include "client/parallel/messages/messages.h"
#include "client/parallel/pipeline/pipeline.h"
#include "client/parallel/pipeline/scatter.h"
#include "client/parallel/tensor_map/deadline.h"

namespace cohort::parallel {

class Reception {
 public:
  // All outlive it. `tensor_group`: in which slices are gathered; null: none are. `receive`: what
  // is expected; null: nothing is received.
  Reception(client::Group& group, client::Group* tensor_group, const PipelineReceive* receive,
            int peer)
      : group_(group), tensor_group_(tensor_group), receive_(receive), peer_(peer) {}

  // As Accept: checks what is announced, and says where it goes.
  absl::StatusOr<std::vector<Tensor>> Place(const std::string& note,
                                            const std::vector<TensorMeta>& metas);
  // Whether Place found nothing wrong.
  bool placed() const { return placed_; }
  // Of the sender's message: Slices::number.
  uint32_t number() const { return slices_.number; }
  // Of what has come into these places: the whole tensors. Members of the tensor group call it for
  // the same tensors. On a stream, once it has passed the slices.
  absl::StatusOr<Tensors> Finish(const Deadline& deadline);

 private:
  // Of a message in which some tensors are slices.
  absl::Status PlaceSlices(const std::vector<TensorMeta>& metas);
  absl::Status CheckExpected(const std::vector<TensorMeta>& metas) const;
  absl::Status CheckCut(const Cut& cut) const;
  // New, or of the cache.
  absl::StatusOr<Tensor> Room(size_t index, const TensorMeta& meta) const;

  client::Group& group_;
  client::Group* const tensor_group_;
  const PipelineReceive* const receive_;
  const int peer_;
  bool placed_ = false;
  Slices slices_;
  Tensors places_;  // that messages go to
  Tensors wholes_;  // where some of those are slices
};

}  // namespace cohort::parallel

#endif  // COHORT_CLIENT_PARALLEL_PIPELINE_RECEPTION_H_
