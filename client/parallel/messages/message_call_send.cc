// The sending side of messages: check, announce, and go once granted.
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "client/parallel/messages/message_call.h"

namespace cohort::parallel {
namespace {

// Tensors up to this size travel with the body: a transfer of their own costs more than the copy.
constexpr int64_t kPacked = int64_t{2} << 10;

// Precondition: `bytes` are of a tensor in memory, so that the result does not overflow.
int64_t Padded(int64_t bytes) { return (bytes + 15) / 16 * 16; }

}  // namespace

absl::Status MessageCall::CheckTensors(const std::vector<Tensor>& tensors) const {
  constexpr int kMostDims = 255;
  for (const Tensor& tensor : tensors) {
    const auto refuse = [&](absl::string_view why) {
      return absl::InvalidArgumentError(absl::StrCat(tensor.ToString(), " cannot be sent: ", why));
    };
    if (tensor.dims() > kMostDims) return refuse("too many dimensions");
    if (!CountableBytes(tensor.type(), tensor.shape()).has_value()) {
      return refuse("its extents are too large");
    }
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

bool MessageCall::GoesBehind(const std::vector<Tensor>& tensors) const {
  if (!state_.wire.has_behind()) return false;
  int64_t pieces = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.device().is_cuda() || tensor.bytes() <= kPacked) continue;
    if (!tensor.contiguous()) return false;
    pieces += (tensor.bytes() + kPieceBytes - 1) / kPieceBytes;
  }
  return pieces < Wire::kRoom;
}

void MessageCall::Prepare(Out& out) {
  const Message& message = *out.message;
  const std::vector<Tensor>& tensors = message.tensors;
  out.status = CheckPeer(out.peer, out.channel);
  if (!out.status.ok()) {
    out.stage = SendStage::kDone;
    return;
  }
  out.frame.channel = out.channel;
  out.frame.number = ++peer(out.peer).sent;
  peer(out.peer).known = true;
  out.status = out.failure->ok() ? CheckTensors(tensors) : *out.failure;
  if (!out.status.ok()) {
    out.frame.kind = FrameKind::kFailed;
    out.frame.bytes = EncodeStatus(out.status);
    return;
  }
  int64_t described = static_cast<int64_t>(message.note.size());
  int64_t all = 0;     // padded bytes of all host tensors
  int64_t packed = 0;  // padded bytes of the small ones
  bool on_device = false;
  for (const Tensor& tensor : tensors) {
    described += 4 + 8 * tensor.dims();
    on_device = on_device || (tensor.device().is_cuda() && tensor.count() > 0);
    if (tensor.device().is_cuda()) continue;
    all += Padded(tensor.bytes());
    if (tensor.bytes() <= kPacked) packed += Padded(tensor.bytes());
  }
  const int64_t room = state_.wire.eager_limit() - kFrameHeaderBytes;
  const int64_t base = Padded(described);
  const bool all_within = !state_.wire.by_exchange() || (!on_device && base + all <= room);
  const bool by_itself = out.awaited && state_.wire.by_exchange();
  const bool has_behind = all_within && !by_itself && GoesBehind(tensors);
  absl::InlinedVector<Elements, 8> elements;
  elements.reserve(tensors.size());
  for (const Tensor& tensor : tensors) {
    const bool is_packed = tensor.device().is_host() && (all_within || tensor.bytes() <= kPacked);
    if (tensor.count() == 0 || (is_packed && !by_itself)) {
      const bool behind = has_behind && tensor.bytes() > kPacked;
      elements.push_back(behind ? Elements::kBehind : Elements::kWithin);
      if (behind) out.frame.behind.push_back(&tensor);
      continue;
    }
    elements.push_back(Elements::kLater);
    out.large.push_back(&tensor);
    out.frame.large_bytes += static_cast<uint64_t>(tensor.bytes());
  }
  out.frame.tensors = static_cast<uint32_t>(tensors.size());
  out.frame.note_bytes = message.note.size();
  out.frame.bytes = EncodeBody(message.note, tensors, elements);
  out.frame.body_later = !all_within && base + packed > room;
  if (!out.frame.body_later) return;
  constexpr auto kHeader = static_cast<size_t>(kFrameHeaderBytes);
  auto bytes = std::make_shared<std::string>(std::move(out.frame.bytes));
  out.frame.bytes.clear();
  out.frame.body_bytes = bytes->size() - kHeader;
  out.body = Tensor(&(*bytes)[kHeader], DataType::kU8, {static_cast<int64_t>(out.frame.body_bytes)},
                    bytes);
}

absl::Status MessageCall::Announce() {
  Ranks peers;
  absl::InlinedVector<Frame, 1> frames;
  const auto put = [&]() -> absl::Status {
    if (peers.empty()) return absl::OkStatus();
    const absl::Status status =
        state_.wire.Put(peers, absl::MakeSpan(frames), deadline_.LeftOnHost());
    peers.clear();
    frames.clear();
    return status;
  };
  for (Out& out : outs_) {
    if (out.stage == SendStage::kDone) continue;
    const int room = state_.wire.RoomFor(out.frame);
    if (peer(out.peer).unlooked + room > Wire::kRoom) COHORT_RETURN_IF_ERROR(put());
    COHORT_RETURN_IF_ERROR(MakeRoom(out.peer, room));
    const bool waits = out.frame.body_later || !out.large.empty();
    out.stage = waits ? SendStage::kWaiting : SendStage::kDone;
    peers.push_back(out.peer);
    frames.push_back(std::move(out.frame));
    out.frame.number = frames.back().number;
  }
  return put();
}

absl::Status MessageCall::Go(Out& out) {
  Frame frame;
  frame.kind = FrameKind::kGo;
  frame.channel = out.channel;
  frame.number = out.frame.number;
  const Tensor body = std::exchange(out.body, Tensor());
  const Tensor* const just_body = &body;
  const bool is_body = body.count() > 0;
  COHORT_RETURN_IF_ERROR(
      state_.wire.Go(out.peer, std::move(frame),
                     is_body ? absl::MakeConstSpan(&just_body, 1)
                             : absl::MakeConstSpan(out.large.data(), out.large.size()),
                     deadline_.Left()));
  out.stage = is_body && !out.large.empty() ? SendStage::kWaiting : SendStage::kDone;
  return absl::OkStatus();
}

absl::Status MessageCall::OnAnswer(const Wire::Came& came) {
  for (Out& out : outs_) {
    if (out.peer != came.peer || out.frame.number != came.frame.number) continue;
    if (out.stage != SendStage::kWaiting) break;
    if (came.frame.kind == FrameKind::kGrant) {
      out.stage = SendStage::kGranted;
      return absl::OkStatus();
    }
    const absl::Status why = DecodeStatus(came.frame.body());
    out.status = absl::Status(why.code(), absl::StrCat("it was refused: ", why.message()));
    out.stage = SendStage::kDone;
    return absl::OkStatus();
  }
  return OutOfSequence(came);
}

}  // namespace cohort::parallel
