#include "client/parallel/messages/message_call.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

using client::CallOptions;

// A tensor up to here goes with the body: a transfer of its own costs more than the copy.
constexpr int64_t kPacked = int64_t{2} << 10;
// Pieces under way to a peer between two looks for what it has sent: half of what memory that ranks
// share has room for. So two ranks that send to each other do not both wait for room.
constexpr int kUnlooked = 4;

absl::Status About(absl::string_view what, int peer, int channel, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("message ", what, " rank ", peer, " on channel ",
                                                  channel, ": ", status.message()));
}

// Of an element count that fits memory.
int64_t Padded(int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

MessageCall::MessageCall(MessageState& state, const std::vector<MessageSend>& sends,
                         const std::vector<MessageReceive>& receives, const CallOptions& options)
    : state_(state),
      group_(state.group),
      options_(options),
      deadline_(options.timeout.has_value() ? Clock::Steady().Now() + *options.timeout
                                            : absl::InfiniteFuture()),
      outs_(sends.size()),
      ins_(receives.size()) {
  for (size_t i = 0; i < sends.size(); ++i) outs_[i].send = &sends[i];
  for (size_t i = 0; i < receives.size(); ++i) ins_[i].receive = &receives[i];
}

absl::StatusOr<std::vector<Message>> MessageCall::Run() {
  if (state_.generation != group_.generation()) {
    state_.generation = group_.generation();
    state_.broken = absl::OkStatus();
    state_.peers.clear();
    state_.peers.resize(static_cast<size_t>(group_.size()));
    state_.kept_messages = 0;
    state_.kept_bytes = 0;
  }
  COHORT_RETURN_IF_ERROR(state_.broken);
  const auto put_back = [this] {
    std::for_each(ins_.rbegin(), ins_.rend(), [this](In& in) { PutBack(in); });
  };
  if (absl::Status status = Drive(); !status.ok()) {
    Break(status);
    put_back();
    return status;
  }
  absl::Status first;
  for (const Out& out : outs_) {
    first.Update(About("to", out.send->peer, out.send->channel, out.status));
  }
  for (const In& in : ins_) {
    first.Update(About("of", in.receive->peer, in.receive->channel, in.status));
  }
  if (!first.ok()) {
    put_back();
    return first;
  }
  std::vector<Message> received;
  for (In& in : ins_) received.push_back(std::move(in.message));
  return received;
}

void MessageCall::Break(const absl::Status& status) {
  // Who only waited for messages may wait again. What has begun nobody can take up again.
  const bool begun = grants_ > 0 || std::any_of(outs_.begin(), outs_.end(), [](const Out& out) {
                       return out.stage == SendStage::kWaiting || out.stage == SendStage::kGranted;
                     });
  const bool waited = absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
  if (begun || !waited) {
    state_.broken = absl::AbortedError(
        absl::StrCat("messages of group ", group_.name(), " have ended: ", status.message()));
  }
}

absl::Status MessageCall::CheckPeer(int peer, int channel) const {
  if (peer < 0 || peer >= group_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("ranks are 0..", group_.size() - 1));
  }
  if (peer == group_.rank()) return absl::InvalidArgumentError("that is this rank itself");
  if (channel < 0) return absl::InvalidArgumentError("channels are not negative");
  return absl::OkStatus();
}

CallOptions MessageCall::Left() const {
  CallOptions left = options_;
  if (options_.timeout.has_value()) {
    left.timeout = std::max(deadline_ - Clock::Steady().Now(), absl::ZeroDuration());
  }
  return left;
}

CallOptions MessageCall::ByHost() const {
  CallOptions left = Left();
  left.stream.reset();
  return left;
}

absl::Status MessageCall::Drive() {
  for (In& in : ins_) {
    in.status = CheckPeer(in.receive->peer, in.receive->channel);
    in.done = !in.status.ok();
  }
  for (Out& out : outs_) Prepare(out);
  COHORT_RETURN_IF_ERROR(Announce());
  while (true) {
    COHORT_RETURN_IF_ERROR(Advance());
    const std::vector<int> open = Open();
    if (open.empty()) return absl::OkStatus();
    const MessagesOptions& limits = state_.options;
    if (state_.kept_messages >= limits.max_kept_messages ||
        state_.kept_bytes > limits.max_kept_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "rank ", group_.rank(), " keeps ", state_.kept_messages, " messages of ",
          state_.kept_bytes, " bytes that it has not asked for, and no more: it has to receive ",
          "them first"));
    }
    const int64_t most = state_.wire.by_exchange() ? MostSentAhead(group_.size())
                                                   : limits.max_message_bytes + kFrameHeaderBytes;
    absl::StatusOr<Wire::Came> came = state_.wire.Get(open, most, ByHost());
    if (!came.ok()) {
      RankSet ranks;
      for (const int rank : open) ranks.Add(rank);
      return absl::Status(
          came.status().code(),
          absl::StrCat("messages with rank ", ranks.ToString(), ": ", came.status().message()));
    }
    COHORT_RETURN_IF_ERROR(OnFrame(*std::move(came)));
  }
}

absl::Status MessageCall::CheckTensors(const std::vector<Tensor>& tensors) const {
  constexpr int kMostDims = 255;
  for (const Tensor& tensor : tensors) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.ToString(), " cannot be sent: ", why));
    };
    if (tensor.dims() > kMostDims) return refuse("too many dimensions");
    if (tensor.count() > 0 && tensor.data() == nullptr) return refuse("its memory is null");
    if (tensor.device().is_host()) continue;
    if (group_.placement() == Placement::kHost || tensor.device() != group_.device()) {
      return refuse(absl::StrCat("rank ", group_.rank(), " of group ", group_.name(), " moves ",
                                 group_.placement() == Placement::kHost
                                     ? "memory of the host"
                                     : absl::StrCat("tensors on ", group_.device().ToString())));
    }
  }
  return absl::OkStatus();
}

void MessageCall::Prepare(Out& out) {
  const MessageSend& send = *out.send;
  const std::vector<Tensor>& tensors = send.message.tensors;
  out.status = CheckPeer(send.peer, send.channel);
  if (!out.status.ok()) {
    out.stage = SendStage::kDone;
    return;
  }
  out.frame.channel = send.channel;
  out.frame.number = ++peer(send.peer).sent;
  out.status = send.failure.ok() ? CheckTensors(tensors) : send.failure;
  if (!out.status.ok()) {
    out.frame.kind = FrameKind::kFailed;
    out.frame.body = EncodeStatus(out.status);
    return;
  }
  int64_t described = static_cast<int64_t>(send.message.note.size());
  int64_t all = 0;     // of the host, by the host
  int64_t packed = 0;  // of them, those of little
  bool on_device = false;
  for (const Tensor& tensor : tensors) {
    described += 4 + 8 * tensor.dims();
    on_device = on_device || (tensor.device().is_cuda() && tensor.count() > 0);
    if (tensor.device().is_cuda()) continue;
    all += Padded(tensor.bytes());
    if (tensor.bytes() <= kPacked) packed += Padded(tensor.bytes());
  }
  const int64_t room = MostSentAhead(group_.size()) - kFrameHeaderBytes;
  const int64_t base = Padded(described);
  const bool all_within = !state_.wire.by_exchange() || (!on_device && base + all <= room);
  const bool by_itself = send.awaited && state_.wire.by_exchange();
  std::vector<bool> within;
  for (const Tensor& tensor : tensors) {
    const bool is_packed = tensor.device().is_host() && (all_within || tensor.bytes() <= kPacked);
    within.push_back(tensor.count() == 0 || (is_packed && !by_itself));
    if (within.back()) continue;
    out.large.push_back(tensor);
    out.frame.large_bytes += static_cast<uint64_t>(tensor.bytes());
  }
  out.frame.tensors = static_cast<uint32_t>(tensors.size());
  out.frame.note_bytes = send.message.note.size();
  out.frame.body = EncodeBody(send.message.note, tensors, within);
  out.frame.body_later = !all_within && base + packed > room;
  if (!out.frame.body_later) return;
  out.frame.body_bytes = out.frame.body.size();
  auto bytes = std::make_shared<std::string>(std::move(out.frame.body));
  out.frame.body.clear();
  out.body = Tensor(&(*bytes)[0], DataType::kU8, {static_cast<int64_t>(bytes->size())}, bytes);
}

absl::Status MessageCall::Announce() {
  std::vector<int> peers;
  std::vector<Frame> frames;
  const auto put = [&]() -> absl::Status {
    if (peers.empty()) return absl::OkStatus();
    const absl::Status status = state_.wire.Put(peers, frames, ByHost());
    peers.clear();
    frames.clear();
    return status;
  };
  for (Out& out : outs_) {
    if (out.stage == SendStage::kDone) continue;
    const int to = out.send->peer;
    const auto bytes = kFrameHeaderBytes + static_cast<int64_t>(out.frame.body.size());
    const int pieces = bytes > kFrameBytes ? 2 : 1;
    if (peer(to).unlooked + pieces > kUnlooked) {
      COHORT_RETURN_IF_ERROR(put());
      COHORT_RETURN_IF_ERROR(TakeIn(to));
    }
    peer(to).unlooked += pieces;
    const bool waits = out.frame.body_later || !out.large.empty();
    out.stage = waits ? SendStage::kWaiting : SendStage::kDone;
    peers.push_back(to);
    frames.push_back(std::move(out.frame));
    out.frame.number = frames.back().number;
  }
  return put();
}

absl::Status MessageCall::TakeIn(int from) {
  peer(from).unlooked = 0;
  while (state_.kept_messages < state_.options.max_kept_messages) {
    COHORT_ASSIGN_OR_RETURN(const bool come, state_.wire.Look(from));
    if (!come) break;
    COHORT_ASSIGN_OR_RETURN(
        Wire::Came came,
        state_.wire.Get(absl::MakeConstSpan(&from, 1), MostSentAhead(group_.size()), ByHost()));
    COHORT_RETURN_IF_ERROR(OnFrame(std::move(came)));
  }
  return absl::OkStatus();
}

absl::Status MessageCall::Advance() {
  bool more = true;
  while (more) {
    more = false;
    for (In& in : ins_) {
      if (in.done) continue;
      if (in.arrival == nullptr) Claim(in);
      if (in.arrival == nullptr) continue;
      COHORT_ASSIGN_OR_RETURN(const bool served, Serve(*in.arrival));
      COHORT_RETURN_IF_ERROR(Deliver(in));
      more = more || served;
    }
    for (const int from : Open()) {
      COHORT_ASSIGN_OR_RETURN(const bool took, TakeUnasked(from));
      more = more || took;
    }
    for (Out& out : outs_) {
      if (out.stage == SendStage::kGranted && MayGo(out.send->peer)) {
        COHORT_RETURN_IF_ERROR(Go(out));
        more = true;
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MessageCall::TakeUnasked(int from) {
  // What this rank waits for may be behind it: the peer may send one after the other, or send to
  // this rank first and receive then.
  const bool waits =
      std::any_of(outs_.begin(), outs_.end(),
                  [from](const Out& out) {
                    return out.send->peer == from && out.stage == SendStage::kWaiting;
                  }) ||
      std::any_of(ins_.begin(), ins_.end(), [from](const In& in) {
        return in.receive->peer == from && !in.done && in.arrival == nullptr;
      });
  if (!waits || peer(from).granted != nullptr) return false;
  bool served = false;
  for (Arrival& arrival : peer(from).arrivals) {
    const bool asks =
        arrival.stage == Arrival::Stage::kAnnounced || arrival.stage == Arrival::Stage::kDescribed;
    if (arrival.claimed || !asks || !IsAwaited(arrival)) continue;
    // Unless it has come already.
    COHORT_ASSIGN_OR_RETURN(const bool more, state_.wire.Look(from));
    if (more) return false;
    COHORT_ASSIGN_OR_RETURN(served, Serve(arrival));
    if (served) break;
  }
  Forget(from);
  return served;
}

void MessageCall::Claim(In& in) {
  for (Arrival& arrival : peer(in.receive->peer).arrivals) {
    if (arrival.claimed || arrival.frame.channel != in.receive->channel) continue;
    arrival.claimed = true;
    state_.kept_messages -= 1;
    state_.kept_bytes -= arrival.kept_bytes;
    in.arrival = &arrival;
    return;
  }
}

bool MessageCall::MayGo(int peer) const { return grants_ == 0 || GoesBefore(group_.rank(), peer); }

std::vector<int> MessageCall::Open() {
  std::vector<int> open;
  const auto add = [&](int peer) {
    if (std::find(open.begin(), open.end(), peer) == open.end()) open.push_back(peer);
  };
  for (const In& in : ins_) {
    if (!in.done) add(in.receive->peer);
  }
  for (const Out& out : outs_) {
    const int to = out.send->peer;
    const bool is_peer = to >= 0 && to < group_.size();
    // Nobody leaves with a grant: the peer's next message would find this rank elsewhere.
    if (is_peer && (out.stage != SendStage::kDone || peer(to).granted != nullptr)) add(to);
  }
  return open;
}

absl::Status MessageCall::Go(Out& out) {
  Frame frame;
  frame.kind = FrameKind::kGo;
  frame.channel = out.send->channel;
  frame.number = out.frame.number;
  const bool body = out.body.count() > 0;
  const std::vector<Tensor> tensors =
      body ? std::vector<Tensor>{std::exchange(out.body, Tensor())} : out.large;
  COHORT_RETURN_IF_ERROR(state_.wire.Go(out.send->peer, frame, tensors, Left()));
  out.stage = body && !out.large.empty() ? SendStage::kWaiting : SendStage::kDone;
  return absl::OkStatus();
}

absl::Status MessageCall::OnFrame(Wire::Came came) {
  switch (came.frame.kind) {
    case FrameKind::kMessage:
    case FrameKind::kFailed:
      OnMessage(std::move(came));
      return absl::OkStatus();
    case FrameKind::kGrant:
    case FrameKind::kRefusal:
      return OnAnswer(came);
    case FrameKind::kGo:
      return OnGo(came);
  }
  return OutOfTurn(came);
}

absl::Status MessageCall::OutOfTurn(const Wire::Came& came) const {
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", came.peer, " answers what nobody asked: kind ",
                   static_cast<int>(came.frame.kind), " of message ", came.frame.number));
}

absl::Status MessageCall::OnAnswer(const Wire::Came& came) {
  for (Out& out : outs_) {
    if (out.send->peer != came.peer || out.frame.number != came.frame.number) continue;
    if (out.stage != SendStage::kWaiting) break;
    if (came.frame.kind == FrameKind::kGrant) {
      out.stage = SendStage::kGranted;
      return absl::OkStatus();
    }
    const absl::Status why = DecodeStatus(came.frame.body);
    out.status = absl::Status(why.code(), absl::StrCat("it was refused: ", why.message()));
    out.stage = SendStage::kDone;
    return absl::OkStatus();
  }
  return OutOfTurn(came);
}

}  // namespace cohort::parallel
