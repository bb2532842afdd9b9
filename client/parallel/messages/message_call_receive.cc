// The receiving side of messages: announce, grant, take, and deliver.
#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/messages/message_call.h"

namespace cohort::parallel {
namespace {

// Whether two indexes may be of one element, judging by the strides alone.
bool MayOverlap(const Tensor& tensor) {
  if (tensor.count() <= 1 || tensor.contiguous()) return false;
  absl::InlinedVector<std::pair<int64_t, int64_t>, 6> steps;  // stride, extent
  for (int dim = 0; dim < tensor.dims(); ++dim) {
    const auto at = static_cast<size_t>(dim);
    if (tensor.shape()[at] == 1) continue;
    steps.emplace_back(std::abs(tensor.strides()[at]), tensor.shape()[at]);
  }
  std::sort(steps.begin(), steps.end());
  int64_t span = 1;
  for (const auto& [stride, extent] : steps) {
    if (stride < span) return true;
    span += stride * (extent - 1);
  }
  return false;
}

// Whether the tensor is so small that an allocation of its own costs much: a worker daemon's is a
// call.
bool IsLittle(const TensorMeta& meta) { return meta.bytes() <= int64_t{2} << 10; }

int64_t Line(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// Small tensors of one place share a block, each in cache lines of its own.
absl::StatusOr<std::vector<Tensor>> NewTensors(client::Group& group,
                                               const std::vector<TensorMeta>& metas) {
  std::vector<Tensor> tensors(metas.size());
  for (const bool on_device : {false, true}) {
    const Device device = on_device ? group.device() : Device::Host();
    int64_t little = 0;
    for (const TensorMeta& meta : metas) {
      if (meta.on_device != on_device) continue;
      if (on_device && device.is_host()) {
        return absl::InvalidArgumentError(
            absl::StrCat(ToString(meta), " was sent: rank ", group.rank(), " has no GPU"));
      }
      if (IsLittle(meta)) little += Line(meta.bytes());
    }
    Tensor block;
    if (little > 0) {
      COHORT_ASSIGN_OR_RETURN(block, group.Allocate(DataType::kU8, {little}, device));
    }
    auto* room = static_cast<char*>(block.data());
    for (size_t i = 0; i < metas.size(); ++i) {
      const TensorMeta& meta = metas[i];
      if (meta.on_device != on_device) continue;
      if (!IsLittle(meta)) {
        COHORT_ASSIGN_OR_RETURN(tensors[i], group.Allocate(meta.type, meta.shape, device));
        continue;
      }
      tensors[i] = Tensor(room, meta.type, meta.shape, block.owner(), device);
      room += Line(meta.bytes());
    }
  }
  return tensors;
}

}  // namespace

void MessageCall::Keep(Arrival& arrival, int64_t bytes) {
  arrival.kept_bytes = bytes;
  state_.kept_messages += 1;
  state_.kept_bytes += bytes;
}

void MessageCall::PutBack(In& in) {
  if (in.arrival != nullptr) {
    Arrival& arrival = *in.arrival;
    if (arrival.accepted && arrival.stage == Arrival::Stage::kComplete) {
      arrival.accepted = false;
      arrival.error = Disown(arrival.tensors);
      if (!arrival.error.ok()) arrival.stage = Arrival::Stage::kFailed;
    }
    arrival.claimed = false;
    Keep(arrival, arrival.kept_bytes);
    return;
  }
  if (!in.done || !in.status.ok() || !in.kept_on_error || !state_.broken.ok()) return;
  Arrival& arrival = peer(in.peer).arrivals.emplace_front();
  arrival.peer = in.peer;
  arrival.frame.channel = in.channel;
  arrival.stage = Arrival::Stage::kComplete;
  arrival.body.note = std::move(in.message.note);
  int64_t bytes = 0;
  if (in.accepted) arrival.error = Disown(in.message.tensors);
  if (!arrival.error.ok()) {
    arrival.stage = Arrival::Stage::kFailed;
    in.message.tensors.clear();
  }
  for (const Tensor& tensor : in.message.tensors) {
    arrival.body.metas.push_back(MetaOf(tensor));
    bytes += tensor.bytes();
  }
  arrival.tensors = std::move(in.message.tensors);
  Keep(arrival, bytes);
}

absl::Status MessageCall::Disown(std::vector<Tensor>& tensors) const {
  std::vector<TensorMeta> metas;
  for (const Tensor& tensor : tensors) metas.push_back(MetaOf(tensor));
  COHORT_ASSIGN_OR_RETURN(std::vector<Tensor> own, NewTensors(group_, metas));
  std::vector<client::TensorCopy> copies;
  for (size_t i = 0; i < own.size(); ++i) {
    if (own[i].count() > 0) copies.push_back({tensors[i], own[i]});
  }
  tensors = std::move(own);
  return group_.CopyAll(copies, deadline_.LeftOnHost());
}

void MessageCall::Forget(int from) {
  peer(from).arrivals.remove_if([this](const Arrival& arrival) {
    if (arrival.claimed || arrival.stage != Arrival::Stage::kRejected) return false;
    state_.kept_messages -= 1;
    state_.kept_bytes -= arrival.kept_bytes;
    return true;
  });
}

absl::Status MessageCall::OnMessage(Wire::Came came) {
  Arrival& arrival = peer(came.peer).arrivals.emplace_back();
  arrival.peer = came.peer;
  arrival.frame = std::move(came.frame);
  Keep(arrival, static_cast<int64_t>(arrival.frame.bytes.size()));
  if (arrival.frame.kind == FrameKind::kFailed) {
    const absl::Status why = DecodeStatus(arrival.frame.body());
    arrival.error = absl::Status(why.code(), absl::StrCat("it was not sent: ", why.message()));
    arrival.stage = Arrival::Stage::kFailed;
  } else if (arrival.frame.body_later) {
    arrival.stage = Arrival::Stage::kAnnounced;
  } else {
    Describe(arrival);
    if (arrival.body.behind_bytes > 0) return TakeBehind(arrival);
  }
  return absl::OkStatus();
}

absl::Status MessageCall::TakeBehind(Arrival& arrival) {
  arrival.kept_bytes += arrival.body.behind_bytes;
  state_.kept_bytes += arrival.body.behind_bytes;
  for (In& in : ins_) {
    if (in.done || in.arrival != nullptr || in.peer != arrival.peer) continue;
    if (in.channel == arrival.frame.channel) Claim(in);
    if (in.arrival == &arrival) break;
  }
  arrival.error = CheckRoom(arrival);
  if (arrival.error.ok()) arrival.error = Place(arrival);
  const Body& body = arrival.body;
  // Places for elements that are not wanted, or whose place is not contiguous.
  std::vector<Tensor> others(body.metas.size());
  absl::InlinedVector<const Tensor*, 1> tensors;
  for (size_t i = 0; i < body.metas.size(); ++i) {
    if (body.places[i] != Body::kBehind) continue;
    const bool there = arrival.error.ok() && arrival.tensors[i].contiguous();
    if (!there) others[i] = Tensor::Uninitialized(body.metas[i].type, body.metas[i].shape);
    tensors.push_back(there ? &arrival.tensors[i] : &others[i]);
  }
  COHORT_RETURN_IF_ERROR(state_.wire.TakeBehind(arrival.peer, tensors, deadline_.LeftOnHost()));
  if (!arrival.error.ok()) {
    arrival.stage = Arrival::Stage::kFailed;
    return absl::OkStatus();
  }
  for (size_t i = 0; i < others.size(); ++i) {
    if (others[i].count() > 0) {
      COHORT_RETURN_IF_ERROR(CopyTensor(others[i], arrival.tensors[i]));
    }
  }
  arrival.stage = Arrival::Stage::kComplete;
  return absl::OkStatus();
}

void MessageCall::Describe(Arrival& arrival) {
  arrival.stage = Arrival::Stage::kDescribed;
  absl::StatusOr<Body> body = DecodeBody(arrival.frame, arrival.body_bytes());
  arrival.error = body.status();
  if (body.ok()) arrival.body = *std::move(body);
}

bool MessageCall::IsAwaited(const Arrival& arrival) {
  return arrival.stage == Arrival::Stage::kAnnounced || arrival.frame.large_bytes > 0;
}

absl::StatusOr<bool> MessageCall::Serve(Arrival& arrival) {
  const bool described = arrival.stage == Arrival::Stage::kDescribed;
  if (!described && arrival.stage != Arrival::Stage::kAnnounced) return false;
  const bool awaited = IsAwaited(arrival);
  if (!awaited && !arrival.claimed) return false;
  if (awaited && peer(arrival.peer).granted != nullptr) return false;
  if (!arrival.error.ok()) {
    COHORT_RETURN_IF_ERROR(Reject(arrival, arrival.error));
    return true;
  }
  if (const absl::Status room = CheckRoom(arrival); !room.ok()) {
    COHORT_RETURN_IF_ERROR(Reject(arrival, room));
    return true;
  }
  if (!described) {
    const auto bytes = static_cast<int64_t>(arrival.frame.body_bytes);
    absl::StatusOr<Tensor> room = group_.Allocate(DataType::kU8, {bytes});
    if (room.ok()) arrival.late_body = *std::move(room);
    COHORT_RETURN_IF_ERROR(room.ok() ? Grant(arrival, Arrival::Stage::kBodyGranted)
                                     : Reject(arrival, room.status()));
    return true;
  }
  if (const absl::Status placed = Place(arrival); !placed.ok()) {
    COHORT_RETURN_IF_ERROR(Reject(arrival, placed));
  } else if (awaited) {
    COHORT_RETURN_IF_ERROR(Grant(arrival, Arrival::Stage::kGranted));
  } else {
    arrival.stage = Arrival::Stage::kComplete;
  }
  return true;
}

absl::Status MessageCall::CheckRoom(const Arrival& arrival) const {
  // The sum fits: the header was checked.
  const auto bytes = static_cast<int64_t>(arrival.frame.body_bytes + arrival.frame.large_bytes) +
                     arrival.body.behind_bytes;
  const MessagesOptions& limits = state_.options;
  if (bytes > limits.max_message_bytes) {
    return absl::ResourceExhaustedError(absl::StrCat("a message of ", bytes, " bytes; rank ",
                                                     group_.rank(), " takes at most ",
                                                     limits.max_message_bytes));
  }
  if (!arrival.claimed && bytes > limits.max_kept_bytes - state_.kept_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("rank ", group_.rank(), " waits for another message, and keeps at most ",
                     limits.max_kept_bytes, " bytes of unreceived messages: this one has ", bytes));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Tensor>> MessageCall::Accepted(const Accept& accept,
                                                          const Body& body) const {
  COHORT_ASSIGN_OR_RETURN(std::vector<Tensor> places, accept(body.note, body.metas));
  if (places.size() != body.metas.size()) {
    return absl::InvalidArgumentError(absl::StrCat(body.metas.size(), " tensors were sent, and ",
                                                   places.size(), " are to be received"));
  }
  for (size_t i = 0; i < places.size(); ++i) {
    const Tensor& place = places[i];
    const TensorMeta& meta = body.metas[i];
    const Device device = meta.on_device ? group_.device() : Device::Host();
    if (place.type() != meta.type || place.shape() != meta.shape || place.device() != device) {
      return absl::InvalidArgumentError(
          absl::StrCat(ToString(meta), " was sent, and ", place.ToString(), " is to be received"));
    }
    if (MayOverlap(place)) {
      return absl::InvalidArgumentError(
          absl::StrCat(place.ToString(), " is to be received: its elements overlap in memory"));
    }
    if (place.count() > 0 && place.data() == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(place.ToString(), " is to be received: its memory is null"));
    }
  }
  return places;
}

absl::Status MessageCall::Place(Arrival& arrival) {
  const auto in = std::find_if(ins_.begin(), ins_.end(),
                               [&](const In& one) { return one.arrival == &arrival; });
  const Body& body = arrival.body;
  if (in != ins_.end() && *in->accept != nullptr) {
    COHORT_ASSIGN_OR_RETURN(arrival.tensors, Accepted(*in->accept, body));
    arrival.accepted = true;
  } else {
    COHORT_ASSIGN_OR_RETURN(arrival.tensors, NewTensors(group_, body.metas));
  }
  const char* const bytes = arrival.body_bytes().data();
  for (size_t i = 0; i < body.metas.size(); ++i) {
    const Tensor& to = arrival.tensors[i];
    if (body.places[i] < 0 || to.count() == 0) continue;
    const char* const from = bytes + body.places[i];
    if (to.contiguous()) {
      std::memcpy(to.data(), from, static_cast<size_t>(to.bytes()));
      continue;
    }
    // The view is only read.
    const Tensor within(const_cast<char*>(from), to.type(), to.shape());
    COHORT_RETURN_IF_ERROR(CopyTensor(within, to));
  }
  return absl::OkStatus();
}

absl::Status MessageCall::Grant(Arrival& arrival, Arrival::Stage stage) {
  Frame frame;
  frame.kind = FrameKind::kGrant;
  frame.channel = arrival.frame.channel;
  frame.number = arrival.frame.number;
  if (!arrival.claimed) {
    const auto bytes = static_cast<int64_t>(arrival.frame.body_bytes + arrival.frame.large_bytes);
    state_.kept_bytes += bytes - arrival.kept_bytes;
    arrival.kept_bytes = bytes;
  }
  peer(arrival.peer).granted = &arrival;
  state_.granted.push_back(arrival.peer);
  arrival.stage = stage;
  return Answer(arrival.peer, std::move(frame));
}

absl::Status MessageCall::Reject(Arrival& arrival, const absl::Status& why) {
  if (IsAwaited(arrival)) {
    Frame frame;
    frame.kind = FrameKind::kReject;
    frame.channel = arrival.frame.channel;
    frame.number = arrival.frame.number;
    frame.bytes = EncodeStatus(why);
    COHORT_RETURN_IF_ERROR(Answer(arrival.peer, std::move(frame)));
  }
  arrival.error = why;
  arrival.stage = Arrival::Stage::kRejected;
  return absl::OkStatus();
}

absl::Status MessageCall::OnGo(const Wire::Came& came) {
  MessageState::Peer& from = peer(came.peer);
  if (from.granted == nullptr || from.granted->frame.number != came.frame.number) {
    return OutOfSequence(came);
  }
  Arrival& arrival = *from.granted;
  absl::InlinedVector<const Tensor*, 2> tensors;
  const bool is_body = arrival.stage == Arrival::Stage::kBodyGranted;
  if (is_body) tensors.push_back(&arrival.late_body);
  for (size_t i = 0; !is_body && i < arrival.tensors.size(); ++i) {
    if (arrival.body.places[i] == Body::kLater) tensors.push_back(&arrival.tensors[i]);
  }
  // The receive of an unclaimed message may come on another stream, or on no stream.
  COHORT_RETURN_IF_ERROR(state_.wire.TakeTensors(
      came.peer, tensors, arrival.claimed ? deadline_.Left() : deadline_.LeftOnHost()));
  from.granted = nullptr;
  state_.granted.erase(std::find(state_.granted.begin(), state_.granted.end(), came.peer));
  if (is_body) {
    Describe(arrival);
  } else {
    arrival.stage = Arrival::Stage::kComplete;
  }
  return absl::OkStatus();
}

void MessageCall::Deliver(In& in) {
  Arrival& arrival = *in.arrival;
  const bool complete = arrival.stage == Arrival::Stage::kComplete;
  const bool failed =
      arrival.stage == Arrival::Stage::kFailed || arrival.stage == Arrival::Stage::kRejected;
  if (!complete && !failed) return;
  in.done = true;
  in.status = arrival.error;
  in.accepted = arrival.accepted;
  // The message came before a receive told its places.
  if (complete && !arrival.accepted && *in.accept != nullptr) {
    absl::StatusOr<std::vector<Tensor>> places = Accepted(*in.accept, arrival.body);
    in.status = places.status();
    if (places.ok()) {
      std::vector<client::TensorCopy> copies;
      for (size_t i = 0; i < places->size(); ++i) {
        if ((*places)[i].count() > 0) copies.push_back({arrival.tensors[i], (*places)[i]});
      }
      in.status = group_.CopyAll(copies, deadline_.LeftOnHost());
      arrival.tensors = *std::move(places);
      in.accepted = true;
    }
  }
  if (in.status.ok()) {
    in.message.note = std::move(arrival.body.note);
    in.message.tensors = std::move(arrival.tensors);
  }
  in.arrival = nullptr;
  peer(in.peer).arrivals.remove_if([&](const Arrival& one) { return &one == &arrival; });
}

}  // namespace cohort::parallel
