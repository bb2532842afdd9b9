#include "client/parallel/pipeline/pipeline.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/collectives/keep_alive.h"
#include "client/parallel/messages/message_frame.h"
#include "client/parallel/pipeline/slice_receiver.h"
#include "client/parallel/pipeline/tensor_slices.h"

namespace cohort::parallel {
namespace {

// Whether the error is neither the end of a group nor a wait that may be repeated: then the other
// members of the tensor group can be told.
bool IsOwnFault(const absl::Status& status) {
  return !status.ok() && !absl::IsAborted(status) && !absl::IsDeadlineExceeded(status) &&
         !absl::IsCancelled(status);
}

// Checks that all members of the tensor group have received the same number in each direction. All
// of them call it.
absl::Status CompareNumbers(client::Group& tensor_group, const SliceReceiver& input,
                            const SliceReceiver& gradient, const client::CallOptions& options) {
  constexpr int kBits = 31;
  static_assert(kMostNumber < uint32_t{1} << kBits, "two of them are one size");
  const int64_t own = int64_t{input.number()} << kBits | gradient.number();
  COHORT_ASSIGN_OR_RETURN(const client::Sizes all, tensor_group.ExchangeSizes(own, options));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const bool forward = all[rank] >> kBits != all[0] >> kBits;
    const auto number = [forward](int64_t both) {
      return forward ? both >> kBits : both & kMostNumber;
    };
    return absl::AbortedError(absl::StrCat(
        "group ", tensor_group.name(), ": the slices that go ", forward ? "forward" : "backward",
        " belong to different micro-batches: rank 0 has number ", number(all[0]), ", and rank ",
        rank, " has number ", number(all[rank]), "; start a new generation of both groups"));
  }
  return absl::OkStatus();
}

// Tensors without their elements, as a message's body has them.
std::string EncodeMetas(const Tensors& tensors) {
  Frame frame;
  frame.tensors = static_cast<uint32_t>(tensors.size());
  std::vector<Elements> elements;
  for (const Tensor& tensor : tensors) {
    elements.push_back(tensor.count() == 0 ? Elements::kWithin : Elements::kLater);
    frame.large_bytes += static_cast<uint64_t>(tensor.bytes());
  }
  frame.bytes = EncodeBody("", tensors, elements);
  return EncodeFrame(std::move(frame));
}

absl::StatusOr<std::vector<TensorMeta>> DecodeMetas(absl::string_view note) {
  COHORT_ASSIGN_OR_RETURN(const Frame header, DecodeFrameHeader(note));
  COHORT_ASSIGN_OR_RETURN(Body body,
                          DecodeBody(header, note.substr(static_cast<size_t>(kFrameHeaderBytes))));
  return std::move(body.metas);
}

const Tensors* AddressOf(const std::optional<Tensors>& tensors) {
  return tensors.has_value() ? &*tensors : nullptr;
}

absl::StatusOr<std::optional<Tensors>> InputOf(absl::StatusOr<Pipeline::Received> received) {
  if (!received.ok()) return received.status();
  return std::move(received->input);
}

absl::StatusOr<std::optional<Tensors>> GradientOf(absl::StatusOr<Pipeline::Received> received) {
  if (!received.ok()) return received.status();
  return std::move(received->output_gradient);
}

}  // namespace

Pipeline::Pipeline(Messages& messages, PipelineOptions options)
    : messages_(messages), options_(std::move(options)) {}

std::optional<int> Pipeline::PeerOf(Side side, const PipelineCall& call, bool wrap) const {
  const bool next = side == Side::kNext;
  const std::optional<int>& of_call = next ? call.next_rank : call.prev_rank;
  const std::optional<int>& of_all = next ? options_.next_rank : options_.prev_rank;
  if (of_call.has_value()) return of_call;
  if (of_all.has_value()) return of_all;
  const int neighbour = stage() + (next ? 1 : -1);
  if (neighbour >= 0 && neighbour < stages()) return neighbour;
  if (!wrap || stages() == 1) return std::nullopt;
  return next ? 0 : stages() - 1;
}

absl::Status Pipeline::NoNeighbour(Side side, absl::string_view what) const {
  return absl::FailedPreconditionError(
      absl::StrCat("stage ", stage(), " of ", stages(), " of group ", messages_.group().name(),
                   " has no ", side == Side::kNext ? "next" : "previous", " stage ", what));
}

uint32_t Pipeline::NextNumber(int peer, bool forward) {
  if (const int64_t generation = messages_.group().generation(); generation != sent_generation_) {
    sent_generation_ = generation;
    sent_.clear();
  }
  uint32_t& number = sent_[{peer, forward}];
  number = number % kMostNumber + 1;
  return number;
}

MessageSend Pipeline::SendOf(const Tensors& tensors, int peer, bool forward,
                             const PipelineCall& call, const client::CallDeadline& deadline,
                             Tensors& copies) {
  MessageSend send;
  send.peer = peer;
  send.channel = ChannelOf(forward);
  send.message.tensors = tensors;
  send.failure = call.failure;
  if (!call.scatter_gather_tensors) return send;
  client::Group* const tensor_group = options_.tensor_group;
  if (tensor_group == nullptr) {
    send.failure = absl::FailedPreconditionError(absl::StrCat(
        "stage ", stage(), " has no tensor group in which its tensors would be scattered"));
    return send;
  }
  const int parts = tensor_group->size();
  Slices slices;
  // Counted even if it fails, because the other members count it.
  if (parts > 1) slices.number = NextNumber(peer, forward);
  if (!call.scattered.empty() && call.scattered.size() != tensors.size()) {
    send.failure = absl::InvalidArgumentError(
        absl::StrCat(tensors.size(), " tensors, and it is said of ", call.scattered.size(),
                     " whether they are scattered"));
    return send;
  }
  slices.cuts.resize(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const bool scattered =
        call.scattered.empty() ? tensors[i].count() % parts == 0 : call.scattered[i];
    if (!scattered || parts == 1 || tensors[i].count() == 0) continue;
    absl::StatusOr<Tensor> slice =
        SliceOf(messages_.group(), tensors[i], parts, tensor_group->rank(),
                deadline.LeftFor(tensors[i].device()));
    if (!slice.ok()) {
      send.failure = slice.status();
      return send;
    }
    if (!tensors[i].contiguous()) copies.push_back(*slice);
    send.message.tensors[i] = *std::move(slice);
    // The receiver may have another tensor group: then this stage has to get the error.
    send.awaited = true;
    slices.cuts[i] = {parts, tensors[i].shape()};
  }
  send.message.note = EncodeSlices(slices);
  return send;
}

absl::StatusOr<Pipeline::Received> Pipeline::Run(const Transfers& transfers,
                                                 const PipelineCall& call, bool wrap) {
  const int unused = -1;
  const int next = PeerOf(Side::kNext, call, wrap).value_or(unused);
  const int previous = PeerOf(Side::kPrevious, call, wrap).value_or(unused);
  const client::CallDeadline deadline(call.options);
  std::vector<MessageSend> sends;
  Tensors copies;
  if (transfers.output != nullptr) {
    sends.push_back(SendOf(*transfers.output, next, true, call, deadline, copies));
  }
  if (transfers.input_gradient != nullptr) {
    sends.push_back(SendOf(*transfers.input_gradient, previous, false, call, deadline, copies));
  }
  client::Group& group = messages_.group();
  client::Group* const tensor_group = call.scatter_gather_tensors ? options_.tensor_group : nullptr;
  SliceReceiver input(group, tensor_group, transfers.input, previous);
  SliceReceiver gradient(group, tensor_group, transfers.output_gradient, next);
  std::vector<MessageReceive> receives;
  const auto receive = [&](int peer, bool forward, SliceReceiver& reception) {
    receives.push_back({peer, ChannelOf(forward),
                        [&](const std::string& note, const std::vector<TensorMeta>& metas) {
                          return reception.Place(note, metas);
                        }});
  };
  if (transfers.input != nullptr) receive(previous, true, input);
  if (transfers.output_gradient != nullptr) receive(next, false, gradient);

  absl::Status exchanged = messages_.Exchange(sends, receives, deadline.Left()).status();
  for (const Tensor& copy : copies) {
    exchanged = AwaitLastUse(group, copy, exchanged, deadline.Left());
  }
  // The other members of the tensor group wait for this one, with or without slices.
  const bool awaited = tensor_group != nullptr && tensor_group->size() > 1 && !receives.empty();
  if (!exchanged.ok()) {
    if (awaited && IsOwnFault(exchanged)) {
      // The other members drop theirs, too. The message has arrived, so this does not wait.
      const client::CallOptions at_once = {absl::ZeroDuration()};
      if (input.placed()) {
        messages_.Receive(previous, ChannelOf(true), at_once).IgnoreError();
      }
      if (gradient.placed()) {
        messages_.Receive(next, ChannelOf(false), at_once).IgnoreError();
      }
      tensor_group->FailCollective(exchanged, deadline.LeftOnHost()).IgnoreError();
    }
    return exchanged;
  }
  const auto finish = [&]() -> absl::StatusOr<Received> {
    if (awaited) {
      COHORT_RETURN_IF_ERROR(CompareNumbers(*tensor_group, input, gradient, deadline.LeftOnHost()));
    }
    Received received;
    if (transfers.input != nullptr) {
      COHORT_ASSIGN_OR_RETURN(received.input, input.Finish(deadline));
    }
    if (transfers.output_gradient != nullptr) {
      COHORT_ASSIGN_OR_RETURN(received.output_gradient, gradient.Finish(deadline));
    }
    return received;
  };
  absl::StatusOr<Received> received = finish();
  if (!received.ok() && call.options.stream.has_value()) {
    // The received tensors are freed with this call, and the stream may not have passed them.
    group.AwaitStreams(deadline.LeftOnHost()).IgnoreError();
    if (tensor_group != nullptr) tensor_group->AwaitStreams(deadline.LeftOnHost()).IgnoreError();
  }
  return received;
}

absl::StatusOr<std::optional<Tensors>> Pipeline::RecvForward(const PipelineReceive& input,
                                                             const PipelineCall& call) {
  if (!PeerOf(Side::kPrevious, call, false).has_value()) return std::nullopt;
  Transfers transfers;
  transfers.input = &input;
  return InputOf(Run(transfers, call, false));
}

absl::StatusOr<std::optional<Tensors>> Pipeline::RecvBackward(const PipelineReceive& gradient,
                                                              const PipelineCall& call) {
  if (!PeerOf(Side::kNext, call, false).has_value()) return std::nullopt;
  Transfers transfers;
  transfers.output_gradient = &gradient;
  return GradientOf(Run(transfers, call, false));
}

absl::Status Pipeline::SendForward(const Tensors& output, const PipelineCall& call) {
  if (!PeerOf(Side::kNext, call, false).has_value()) return absl::OkStatus();
  Transfers transfers;
  transfers.output = &output;
  return Run(transfers, call, false).status();
}

absl::Status Pipeline::SendBackward(const Tensors& gradient, const PipelineCall& call) {
  if (!PeerOf(Side::kPrevious, call, false).has_value()) return absl::OkStatus();
  Transfers transfers;
  transfers.input_gradient = &gradient;
  return Run(transfers, call, false).status();
}

absl::StatusOr<std::optional<Tensors>> Pipeline::SendForwardRecvBackward(
    const ForwardBackward& what, const PipelineCall& call) {
  if (!PeerOf(Side::kNext, call, false).has_value()) {
    if (what.output.has_value()) return NoNeighbour(Side::kNext, "to send its output to");
    return std::nullopt;
  }
  Transfers transfers;
  transfers.output = AddressOf(what.output);
  if (what.recv_next) transfers.output_gradient = &what.output_gradient;
  return GradientOf(Run(transfers, call, false));
}

absl::StatusOr<std::optional<Tensors>> Pipeline::SendBackwardRecvForward(
    const BackwardForward& what, const PipelineCall& call) {
  if (!PeerOf(Side::kPrevious, call, false).has_value()) {
    if (what.input_gradient.has_value()) {
      return NoNeighbour(Side::kPrevious, "to send its gradient to");
    }
    return std::nullopt;
  }
  Transfers transfers;
  transfers.input_gradient = AddressOf(what.input_gradient);
  if (what.recv_prev) transfers.input = &what.input;
  return InputOf(Run(transfers, call, false));
}

absl::StatusOr<std::optional<Tensors>> Pipeline::SendForwardRecvForward(const ForwardForward& what,
                                                                        const PipelineCall& call) {
  Both both;
  both.output = what.output;
  both.input = what.input;
  both.recv_prev = what.recv_prev;
  both.recv_next = false;
  return InputOf(SendForwardBackwardRecvForwardBackward(both, call));
}

absl::StatusOr<std::optional<Tensors>> Pipeline::SendBackwardRecvBackward(
    const BackwardBackward& what, const PipelineCall& call) {
  Both both;
  both.input_gradient = what.input_gradient;
  both.output_gradient = what.output_gradient;
  both.recv_prev = false;
  both.recv_next = what.recv_next;
  return GradientOf(SendForwardBackwardRecvForwardBackward(both, call));
}

absl::StatusOr<Pipeline::Received> Pipeline::SendForwardBackwardRecvForwardBackward(
    const Both& what, const PipelineCall& call) {
  const bool next = PeerOf(Side::kNext, call, options_.wrap).has_value();
  const bool previous = PeerOf(Side::kPrevious, call, options_.wrap).has_value();
  if (what.output.has_value() && !next) return NoNeighbour(Side::kNext, "to send its output to");
  if (what.input_gradient.has_value() && !previous) {
    return NoNeighbour(Side::kPrevious, "to send its gradient to");
  }
  if (what.recv_prev && !previous) return NoNeighbour(Side::kPrevious, "to receive from");
  if (what.recv_next && !next) return NoNeighbour(Side::kNext, "to receive from");
  Transfers transfers;
  transfers.output = AddressOf(what.output);
  transfers.input_gradient = AddressOf(what.input_gradient);
  if (what.recv_prev) transfers.input = &what.input;
  if (what.recv_next) transfers.output_gradient = &what.output_gradient;
  return Run(transfers, call, options_.wrap);
}

absl::StatusOr<bool> Pipeline::SendTensorMeta(const Tensors& tensors, bool need_meta,
                                              const PipelineCall& call) {
  if (!need_meta) return false;
  const std::optional<int> next = PeerOf(Side::kNext, call, options_.wrap);
  if (!next.has_value()) return NoNeighbour(Side::kNext, "to send descriptions of tensors to");
  COHORT_RETURN_IF_ERROR(
      messages_.Send(*next, MetaChannel(), {EncodeMetas(tensors), {}}, call.options));
  return false;
}

absl::StatusOr<std::vector<TensorMeta>> Pipeline::RecvTensorMeta(
    const std::optional<std::vector<TensorMeta>>& known, const PipelineCall& call) {
  if (known.has_value()) return *known;
  const std::optional<int> previous = PeerOf(Side::kPrevious, call, options_.wrap);
  if (!previous.has_value()) {
    return NoNeighbour(Side::kPrevious, "to receive descriptions of tensors from");
  }
  COHORT_ASSIGN_OR_RETURN(const Message message,
                          messages_.Receive(*previous, MetaChannel(), call.options));
  return DecodeMetas(message.note);
}

}  // namespace cohort::parallel
