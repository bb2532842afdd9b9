#include "client/parallel/tensor_map/send_receive.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/collective/call_deadline.h"
#include "client/parallel/collectives/keep_alive.h"
#include "client/parallel/pipeline/tensor_slices.h"
#include "client/parallel/tensor_map/entries/entries.h"
#include "client/parallel/tensor_map/group_tensors.h"

namespace cohort::parallel {
namespace {

// The time in which ranks tell each other their outcome after the timeout.
constexpr absl::Duration kErrorReserve = absl::Seconds(1);

absl::Status CheckNotAlone(const client::Group& group, absl::string_view what) {
  if (group.size() > 1) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(what, " of a tensor map: group ", group.name(), " has one rank alone"));
}

// Makes the message of a map.
absl::Status Prepare(client::Group& group, const TensorMap& map, const MapGatherOptions& gather,
                     const client::CallDeadline& deadline, MessageSend& send) {
  const auto parts = [&](WayTo way, const Tensor& tensor) -> absl::StatusOr<int> {
    COHORT_RETURN_IF_ERROR(CheckMoves(group, way, tensor));
    return PartsFor(gather, way, tensor);
  };
  const auto encode = [&]() -> absl::StatusOr<EncodedMap> {
    COHORT_RETURN_IF_ERROR(CheckOverrides(gather, map));
    return EncodeMap(map, parts);
  };
  absl::StatusOr<EncodedMap> result = encode();
  const bool checks = gather.check && gather.group != nullptr;
  if (!result.ok()) {
    // The other ranks of that group are about to compare.
    if (checks) gather.group->FailCollective(result.status(), deadline.LeftOnHost()).IgnoreError();
    return result.status();
  }
  EncodedMap& encoded = *result;
  if (checks) {
    std::vector<Tensor> alike;
    for (size_t i = 0; i < encoded.tensors.size(); ++i) {
      if (encoded.tensor_entries[i].parts > 1) alike.push_back(encoded.tensors[i]);
    }
    COHORT_RETURN_IF_ERROR(CheckAlike(*gather.group, alike, deadline.LeftOnHost()));
  }
  for (size_t i = 0; i < encoded.tensors.size(); ++i) {
    const int parts_of_it = encoded.tensor_entries[i].parts;
    if (parts_of_it == 1) continue;
    Tensor& tensor = encoded.tensors[i];
    COHORT_ASSIGN_OR_RETURN(tensor, SliceOf(group, tensor, parts_of_it, gather.group->rank(),
                                            deadline.LeftFor(tensor.device())));
  }
  // A receiver that cannot gather tells the sender, too, however small the message is.
  send.awaited = std::any_of(encoded.tensor_entries.begin(), encoded.tensor_entries.end(),
                             [](const TensorEntry& entry) { return entry.parts > 1; });
  send.message = {std::move(encoded.entries), std::move(encoded.tensors)};
  return absl::OkStatus();
}

// A map that is being received.
class MapReceiver {
 public:
  MapReceiver(client::Group& group, client::Group* gathers_in, int peer,
              const client::CallDeadline& deadline)
      : group_(group), gathers_in_(gathers_in), peer_(peer), deadline_(deadline) {}

  // For Messages: the places of the tensors.
  absl::StatusOr<std::vector<Tensor>> Accept(const std::string& note,
                                             const std::vector<TensorMeta>& metas) {
    COHORT_RETURN_IF_ERROR(Parse(note));
    const std::vector<TensorEntry>& entries = map_.tensors();
    if (metas.size() != entries.size()) {
      return Named(absl::InvalidArgumentError(
          absl::StrCat(metas.size(), " tensors came, and its entries are of ", entries.size())));
    }
    const bool in_parts = std::any_of(entries.begin(), entries.end(),
                                      [](const TensorEntry& entry) { return entry.parts > 1; });
    if (!in_parts) {
      COHORT_RETURN_IF_ERROR(CheckCame(metas, entries));
      return AllocateAll(group_, entries);
    }
    std::vector<TensorEntry> sent = entries;
    for (TensorEntry& entry : sent) {
      if (entry.parts == 1) continue;
      COHORT_RETURN_IF_ERROR(CheckGathers(entry));
      COHORT_ASSIGN_OR_RETURN(Tensor whole, AllocateFor(*gathers_in_, entry));
      gathered_.push_back(std::move(whole));
      entry.shape = {entry.sent_count()};
      entry.parts = 1;
    }
    COHORT_RETURN_IF_ERROR(CheckCame(metas, sent));
    return AllocateAll(group_, sent);
  }

  absl::StatusOr<TensorMap> Finish(absl::StatusOr<Message> message) {
    if (gathers_in_ != nullptr) {
      COHORT_RETURN_IF_ERROR(AllHaveParts(*gathers_in_, message.status(), map_.tensors(),
                                          deadline_.LeftOnHost(kErrorReserve)));
    }
    COHORT_RETURN_IF_ERROR(message.status());
    size_t gathered = 0;
    for (size_t i = 0; i < message->tensors.size(); ++i) {
      const TensorEntry& entry = map_.tensors()[i];
      Tensor& tensor = message->tensors[i];
      if (entry.parts > 1) {
        const Tensor& whole = gathered_[gathered++];
        COHORT_RETURN_IF_ERROR(
            GatherSlices(*gathers_in_, tensor, whole, deadline_.LeftFor(tensor.device())));
        parts_.push_back(std::exchange(tensor, whole));
      }
      map_.Fill(i, std::move(tensor));
    }
    // The parts are freed with this call.
    if (gathered > 0 && deadline_.Left().stream.has_value()) {
      COHORT_RETURN_IF_ERROR(gathers_in_->AwaitStreams(deadline_.LeftOnHost()));
    }
    return std::move(map_).Take();
  }

 private:
  absl::Status Named(const absl::Status& status) const {
    return absl::Status(status.code(), absl::StrCat("the tensor map of rank ", peer_, " of group ",
                                                    group_.name(), ": ", status.message()));
  }

  absl::Status Parse(absl::string_view note) {
    absl::StatusOr<DecodedMap> map = DecodedMap::Parse(note);
    if (!map.ok()) return Named(map.status());
    map_ = *std::move(map);
    return absl::OkStatus();
  }

  // `sent`: the entries, as their tensors or parts travel.
  absl::Status CheckCame(const std::vector<TensorMeta>& metas,
                         const std::vector<TensorEntry>& sent) const {
    for (size_t i = 0; i < sent.size(); ++i) {
      const TensorMeta& came = metas[i];
      if (came.type == sent[i].type && came.shape == sent[i].shape &&
          came.on_device == sent[i].on_gpu) {
        continue;
      }
      return Named(absl::InvalidArgumentError(
          absl::StrCat("tensor ", i, " came as ", parallel::ToString(came), ", and its entry says ",
                       map_.tensors()[i].ToString())));
    }
    return absl::OkStatus();
  }

  absl::Status CheckGathers(const TensorEntry& entry) const {
    std::string why;
    if (gathers_in_ == nullptr) {
      why = "gathers nothing";
    } else if (gathers_in_->size() != entry.parts) {
      why = absl::StrCat("gathers in group ", gathers_in_->name(), " of ", gathers_in_->size(),
                         " ranks");
    } else if (!Moves(*gathers_in_, entry.on_gpu)) {
      why = absl::StrCat("gathers in group ", gathers_in_->name(), ", whose placement is ",
                         NameOf(gathers_in_->placement()));
    } else if (entry.on_gpu && gathers_in_->device() != group_.device()) {
      why = absl::StrCat("gathers in group ", gathers_in_->name(), ", which has ",
                         gathers_in_->device().ToString(), " and not ", group_.device().ToString());
    } else {
      return absl::OkStatus();
    }
    return Named(absl::InvalidArgumentError(
        absl::StrCat("it has ", entry.ToString(), ", and rank ", group_.rank(), " ", why)));
  }

  client::Group& group_;
  client::Group* const gathers_in_;
  const int peer_;
  const client::CallDeadline& deadline_;
  DecodedMap map_;
  std::vector<Tensor> gathered_;  // by tensor in parts: the place of the whole
  std::vector<Tensor> parts_;     // parts that a stream may still read
};

}  // namespace

absl::Status SendTensorMap(Messages& messages, const TensorMap& map,
                           const SendMapOptions& options) {
  client::Group& group = messages.group();
  COHORT_RETURN_IF_ERROR(CheckNotAlone(group, "send"));
  const client::CallDeadline deadline(options.call);
  std::vector<MessageSend> sends(1);
  MessageSend& send = sends[0];
  send.peer = options.to.value_or((group.rank() + 1) % group.size());
  send.channel = options.channel;
  // Sent instead of the map, so that the receiver does not wait and stays in step.
  send.failure = Prepare(group, map, options.gather, deadline, send);
  absl::Status status = messages.Exchange(sends, {}, deadline.Left()).status();
  // Parts of strided tensors are copies, which are freed with this call.
  for (const Tensor& tensor : send.message.tensors) {
    if (send.awaited) status = AwaitLastUse(group, tensor, status, deadline.Left());
  }
  return status;
}

absl::StatusOr<TensorMap> ReceiveTensorMap(Messages& messages, const ReceiveMapOptions& options) {
  client::Group& group = messages.group();
  COHORT_RETURN_IF_ERROR(CheckNotAlone(group, "receive"));
  const client::CallDeadline deadline(options.call);
  const int from = options.from.value_or((group.rank() + group.size() - 1) % group.size());
  MapReceiver reception(group, options.gather.group, from, deadline);
  return reception.Finish(
      messages.Receive(from, options.channel, deadline.Left(),
                       [&reception](const std::string& note, const std::vector<TensorMeta>& metas) {
                         return reception.Accept(note, metas);
                       }));
}

client::PendingCall StartSendTensorMap(client::AsyncCalls& calls, Messages& messages, TensorMap map,
                                       SendMapOptions options) {
  return calls.Start([&messages, map = std::move(map), options = std::move(options)](
                         client::Group&) { return SendTensorMap(messages, map, options); });
}

Pending<TensorMap> StartReceiveTensorMap(client::AsyncCalls& calls, Messages& messages,
                                         ReceiveMapOptions options) {
  return Pending<TensorMap>::Start(calls,
                                   [&messages, options = std::move(options)](client::Group&) {
                                     return ReceiveTensorMap(messages, options);
                                   });
}

}  // namespace cohort::parallel
