#include "client/parallel/pipeline/slice_receiver.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/results/allocate.h"

namespace cohort::parallel {
namespace {

std::string ToString(const Expected& expected) {
  return absl::StrCat(expected.type.has_value() ? NameOf(*expected.type) : "any type", " ",
                      expected.shape.has_value() ? FormatShape(*expected.shape) : "of any shape");
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> SliceReceiver::Place(const std::string& note,
                                                         const std::vector<TensorMeta>& metas) {
  COHORT_ASSIGN_OR_RETURN(slices_, DecodeSlices(note, metas));
  placed_ = false;
  places_.clear();
  wholes_.clear();
  if (slices_.cuts.empty()) {
    COHORT_RETURN_IF_ERROR(CheckExpected(metas));
    places_.reserve(metas.size());
    for (size_t i = 0; i < metas.size(); ++i) {
      COHORT_ASSIGN_OR_RETURN(places_.emplace_back(), Room(i, metas[i]));
    }
  } else {
    COHORT_RETURN_IF_ERROR(PlaceSlices(metas));
  }
  placed_ = true;
  return places_;
}

absl::Status SliceReceiver::PlaceSlices(const std::vector<TensorMeta>& metas) {
  const std::vector<Cut>& cuts = slices_.cuts;
  std::vector<TensorMeta> whole = metas;
  for (size_t i = 0; i < metas.size(); ++i) {
    if (cuts[i].parts == 1) continue;
    COHORT_RETURN_IF_ERROR(CheckCut(cuts[i]));
    whole[i].shape = cuts[i].shape;
  }
  COHORT_RETURN_IF_ERROR(CheckExpected(whole));
  for (size_t i = 0; i < metas.size(); ++i) {
    COHORT_ASSIGN_OR_RETURN(const Tensor room, Room(i, whole[i]));
    Tensor place = room;
    if (cuts[i].parts > 1) {
      COHORT_ASSIGN_OR_RETURN(
          place, Allocate(*tensor_group_, metas[i].type, metas[i].shape, room.device()));
    }
    places_.push_back(std::move(place));
    wholes_.push_back(room);
  }
  return absl::OkStatus();
}

absl::Status SliceReceiver::CheckCut(const Cut& cut) const {
  if (tensor_group_ == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", peer_, " sent a slice of ", cut.parts, ", and rank ", group_.rank(),
                     " does not gather any (scatter_gather_tensors)"));
  }
  const int size = tensor_group_->size();
  if (cut.parts == size) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "rank ", peer_, " sent a slice of ", cut.parts, ", and the tensor group of rank ",
      group_.rank(), " has ", size, size == 1 ? " member" : " members"));
}

absl::Status SliceReceiver::CheckExpected(const std::vector<TensorMeta>& metas) const {
  const std::vector<Expected>& expected = receive_->expected;
  if (expected.empty()) return absl::OkStatus();
  if (expected.size() != metas.size()) {
    return absl::InvalidArgumentError(absl::StrCat("rank ", group_.rank(), " expects ",
                                                   expected.size(), " tensors, and rank ", peer_,
                                                   " sent ", metas.size()));
  }
  for (size_t i = 0; i < metas.size(); ++i) {
    const Expected& one = expected[i];
    if (one.type.value_or(metas[i].type) == metas[i].type &&
        one.shape.value_or(metas[i].shape) == metas[i].shape) {
      continue;
    }
    return absl::InvalidArgumentError(absl::StrCat("tensor ", i, ": rank ", group_.rank(),
                                                   " expects ", ToString(one), ", and rank ", peer_,
                                                   " sent ", ToString(metas[i])));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tensor> SliceReceiver::Room(size_t index, const TensorMeta& meta) const {
  if (receive_->cache != nullptr && index < receive_->cache->tensors.size()) {
    const Tensor& last = receive_->cache->tensors[index];
    if (MetaOf(last) == meta && last.contiguous()) return last;
  }
  const Device device = meta.on_device ? group_.device() : Device::Host();
  return Allocate(group_, meta.type, meta.shape, device);
}

absl::StatusOr<Tensors> SliceReceiver::Finish(const client::CallDeadline& deadline) {
  const bool is_whole = slices_.cuts.empty();
  bool on_stream = false;
  for (size_t i = 0; !is_whole && i < places_.size(); ++i) {
    if (slices_.cuts[i].parts == 1) continue;
    const client::CallOptions left = deadline.LeftFor(wholes_[i].device());
    on_stream = on_stream || left.stream.has_value();
    COHORT_RETURN_IF_ERROR(GatherSlices(*tensor_group_, places_[i], wholes_[i], left));
  }
  // Slices are freed with this call.
  if (on_stream) COHORT_RETURN_IF_ERROR(tensor_group_->AwaitStreams(deadline.LeftOnHost()));
  Tensors& tensors = is_whole ? places_ : wholes_;
  if (receive_->cache != nullptr) receive_->cache->tensors = tensors;
  return std::move(tensors);
}

}  // namespace cohort::parallel
