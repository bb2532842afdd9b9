#include "client/parallel/messages/message_call.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rank_set.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

using client::CallOptions;

absl::Status About(absl::string_view what, int peer, int channel, const absl::Status& status) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("message ", what, " rank ", peer, " on channel ",
                                                  channel, ": ", status.message()));
}

}  // namespace

MessageCall::MessageCall(MessageState& state, const CallOptions& options)
    : state_(state), group_(state.group), deadline_(options) {}

void MessageCall::Add(int peer, int channel, const Message& message, bool awaited,
                      const absl::Status& failure) {
  Out& out = outs_.emplace_back();
  out.peer = peer;
  out.channel = channel;
  out.message = &message;
  out.awaited = awaited;
  out.failure = &failure;
}

void MessageCall::Add(int peer, int channel, const Accept& accept, bool kept_on_error) {
  In& in = ins_.emplace_back();
  in.peer = peer;
  in.channel = channel;
  in.accept = &accept;
  in.kept_on_error = kept_on_error;
}

absl::Status MessageCall::Run() {
  if (state_.generation != group_.generation()) {
    state_.generation = group_.generation();
    state_.wire.Begin();
    state_.broken = absl::OkStatus();
    state_.peers.clear();
    state_.peers.resize(static_cast<size_t>(group_.size()));
    state_.granted.clear();
    state_.kept_messages = 0;
    state_.kept_bytes = 0;
  }
  COHORT_RETURN_IF_ERROR(state_.broken);
  absl::Status first = Drive();
  if (!first.ok()) Break(first);
  for (const Out& out : outs_) {
    first.Update(About("to", out.peer, out.channel, out.status));
  }
  for (const In& in : ins_) {
    first.Update(About("of", in.peer, in.channel, in.status));
  }
  if (first.ok()) return first;
  if (deadline_.has_stream()) {
    // The next receive of a message that is put back may be on another stream, or on no stream.
    const absl::Status passed = group_.AwaitStreams(deadline_.LeftOnHost());
    if (!passed.ok() && state_.broken.ok()) state_.broken = Ended(passed);
  }
  std::for_each(ins_.rbegin(), ins_.rend(), [this](In& in) { PutBack(in); });
  return first;
}

void MessageCall::Break(const absl::Status& status) {
  // If the call only waited for messages, a later call may wait again. If a transfer had begun, no
  // later call can continue it.
  const bool begun = !state_.granted.empty() || state_.wire.torn() ||
                     std::any_of(outs_.begin(), outs_.end(), [](const Out& out) {
                       return out.stage == SendStage::kWaiting || out.stage == SendStage::kGranted;
                     });
  const bool waited = absl::IsDeadlineExceeded(status) || absl::IsResourceExhausted(status);
  if (begun || !waited) {
    state_.broken = Ended(status);
  }
}

absl::Status MessageCall::Ended(const absl::Status& why) const {
  return absl::AbortedError(
      absl::StrCat("messages of group ", group_.name(), " have ended: ", why.message()));
}

absl::Status MessageCall::CheckPeer(int peer, int channel) const {
  if (peer < 0 || peer >= group_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("ranks are 0..", group_.size() - 1));
  }
  if (peer == group_.rank()) return absl::InvalidArgumentError("that is this rank itself");
  if (channel < 0) return absl::InvalidArgumentError("channels are not negative");
  return absl::OkStatus();
}

absl::Status MessageCall::Drive() {
  for (In& in : ins_) {
    in.status = CheckPeer(in.peer, in.channel);
    in.done = !in.status.ok();
    if (!in.done) peer(in.peer).known = true;
  }
  for (Out& out : outs_) Prepare(out);
  COHORT_RETURN_IF_ERROR(Announce());
  while (true) {
    COHORT_RETURN_IF_ERROR(Advance());
    const Ranks open = Open();
    if (open.empty()) return absl::OkStatus();
    COHORT_RETURN_IF_ERROR(CheckKept());
    absl::StatusOr<Wire::Came> came =
        state_.wire.Get(open, MostOfAnObject(), deadline_.LeftOnHost());
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

absl::Status MessageCall::CheckKept() const {
  const MessagesOptions& limits = state_.options;
  if (state_.kept_messages < limits.max_kept_messages &&
      state_.kept_bytes <= limits.max_kept_bytes) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "rank ", group_.rank(), " keeps ", state_.kept_messages, " unreceived messages of ",
      state_.kept_bytes, " bytes, at most ", limits.max_kept_messages, " messages and ",
      limits.max_kept_bytes, " bytes: it must receive them first"));
}

int64_t MessageCall::MostOfAnObject() const {
  return state_.options.max_message_bytes + kFrameHeaderBytes;
}

absl::Status MessageCall::MakeRoom(int to, int room) {
  if (peer(to).unlooked + room > Wire::kRoom) COHORT_RETURN_IF_ERROR(TakeIn());
  peer(to).unlooked += room;
  return absl::OkStatus();
}

absl::Status MessageCall::TakeIn() {
  Ranks known;
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (peer(rank).known) known.push_back(rank);
  }
  while (true) {
    COHORT_ASSIGN_OR_RETURN(const std::optional<MessageInfo> found, state_.wire.Look(known));
    if (!found.has_value()) break;
    COHORT_RETURN_IF_ERROR(CheckKept());
    COHORT_ASSIGN_OR_RETURN(Wire::Came came, state_.wire.GetFound(*found, deadline_.LeftOnHost()));
    COHORT_RETURN_IF_ERROR(OnFrame(std::move(came)));
  }
  // Not earlier: a rank that looked but took nothing in has made no room.
  for (MessageState::Peer& one : state_.peers) one.unlooked = 0;
  return absl::OkStatus();
}

absl::Status MessageCall::Answer(int to, Frame frame) {
  COHORT_RETURN_IF_ERROR(MakeRoom(to, state_.wire.RoomFor(frame)));
  return state_.wire.Put(absl::MakeConstSpan(&to, 1), absl::MakeSpan(&frame, 1),
                         deadline_.LeftOnHost());
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
      Deliver(in);
      more = more || served;
    }
    for (const int from : Open()) {
      COHORT_ASSIGN_OR_RETURN(const bool took, TakeUnasked(from));
      more = more || took;
    }
    for (Out& out : outs_) {
      if (out.stage == SendStage::kGranted && MayGo(out.peer)) {
        COHORT_RETURN_IF_ERROR(Go(out));
        more = true;
      }
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MessageCall::TakeUnasked(int from) {
  // Messages that arrived while this rank answered others may be the ones that this call receives.
  bool claimed = false;
  for (In& in : ins_) {
    if (in.peer != from || in.done || in.arrival != nullptr) continue;
    Claim(in);
    claimed = claimed || in.arrival != nullptr;
  }
  if (claimed) return true;
  // The awaited message may come after it: the peer may send one message after another, or send to
  // this rank first and receive then.
  const bool waits = std::any_of(outs_.begin(), outs_.end(),
                                 [from](const Out& out) {
                                   return out.peer == from && out.stage == SendStage::kWaiting;
                                 }) ||
                     std::any_of(ins_.begin(), ins_.end(), [from](const In& in) {
                       return in.peer == from && !in.done && in.arrival == nullptr;
                     });
  if (!waits || peer(from).granted != nullptr) return false;
  bool served = false;
  for (Arrival& arrival : peer(from).arrivals) {
    const bool asks =
        arrival.stage == Arrival::Stage::kAnnounced || arrival.stage == Arrival::Stage::kDescribed;
    if (arrival.claimed || !asks || !IsAwaited(arrival)) continue;
    // The awaited message may have arrived already.
    COHORT_ASSIGN_OR_RETURN(const auto more, state_.wire.Look(absl::MakeConstSpan(&from, 1)));
    if (more.has_value()) return false;
    COHORT_ASSIGN_OR_RETURN(served, Serve(arrival));
    if (served) break;
  }
  Forget(from);
  return served;
}

void MessageCall::Claim(In& in) {
  for (Arrival& arrival : peer(in.peer).arrivals) {
    if (arrival.claimed || arrival.frame.channel != in.channel) continue;
    arrival.claimed = true;
    state_.kept_messages -= 1;
    state_.kept_bytes -= arrival.kept_bytes;
    in.arrival = &arrival;
    return;
  }
}

bool MessageCall::MayGo(int peer) const {
  return state_.granted.empty() || GoesBefore(group_.rank(), peer);
}

MessageCall::Ranks MessageCall::Open() {
  Ranks open(state_.granted.begin(), state_.granted.end());
  const auto add = [&](int peer) {
    if (std::find(open.begin(), open.end(), peer) == open.end()) open.push_back(peer);
  };
  for (const In& in : ins_) {
    if (!in.done) add(in.peer);
  }
  for (const Out& out : outs_) {
    if (out.stage != SendStage::kDone) add(out.peer);
  }
  return open;
}

absl::Status MessageCall::OnFrame(Wire::Came came) {
  switch (came.frame.kind) {
    case FrameKind::kMessage:
    case FrameKind::kFailed:
      return OnMessage(std::move(came));
    case FrameKind::kGrant:
    case FrameKind::kReject:
      return OnAnswer(came);
    case FrameKind::kGo:
      return OnGo(came);
  }
  return OutOfSequence(came);
}

absl::Status MessageCall::OutOfSequence(const Wire::Came& came) const {
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", came.peer, " sent an answer without a request: kind ",
                   static_cast<int>(came.frame.kind), " of message ", came.frame.number));
}

}  // namespace cohort::parallel
