#include "client/parallel/messages/frame_transport.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

using client::CallDeadline;
using client::CallOptions;
using client::TensorTransfer;

// How long it waits for an object of one peer before it tries the next peer. The coordinator does
// not tell which object came first.
constexpr absl::Duration kGlance = absl::Milliseconds(5);
// Limits receives of objects without a timeout of their own; the same as the group's.
constexpr absl::Duration kTimeout = absl::Seconds(300);

absl::Status Of(int peer, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("from rank ", peer, ": ", status.message()));
}

Tensor BytesOf(std::string* bytes, size_t begin, size_t size) {
  return Tensor(&(*bytes)[begin], DataType::kU8, {static_cast<int64_t>(size)});
}

constexpr int64_t kKiB = 1024;

bool IsByMemory(const client::Group& group) {
  const auto& paths = group.paths();
  return std::all_of(paths.begin(), paths.end(), [](const std::string& path) {
    return path == "self" || path == "shared memory";
  });
}

// Through shared memory, four pieces go without waiting. Over sockets, a frame is
// at most a quarter of the bytes that may be under way to a peer. That limit is lower in large
// groups, and a sender learns of taken bytes only by halves of it.
int64_t EagerLimitOf(const client::Group& group) {
  constexpr int kPiecesMore = 3;
  if (IsByMemory(group)) return kFrameBytes + kPiecesMore * kPieceBytes;
  if (group.size() <= 16) return kFrameBytes + 8 * kKiB;
  return kFrameBytes + (group.size() <= 64 ? 2 * kKiB : 1 * kKiB);
}

int64_t PiecesOf(int64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

// Adds a tensor in the pieces in which it travels.
template <typename Transfers>
void AddPieces(bool sends, int peer, const Tensor& tensor, Transfers* transfers) {
  auto* const bytes = static_cast<char*>(tensor.data());
  for (int64_t at = 0; at < tensor.bytes(); at += kPieceBytes) {
    const int64_t piece = std::min(tensor.bytes() - at, kPieceBytes);
    transfers->push_back({sends, peer, Tensor(bytes + at, DataType::kU8, {piece})});
  }
}

// Adds a frame and the tensors behind it. `encoded` keeps the frame's bytes.
void AddFrame(int to, Frame frame, std::string* encoded, std::vector<TensorTransfer>* transfers) {
  const auto behind = std::move(frame.behind);
  *encoded = EncodeFrame(std::move(frame));
  AddPieces(/*sends=*/true, to, BytesOf(encoded, 0, encoded->size()), transfers);
  for (const Tensor* const tensor : behind) AddPieces(/*sends=*/true, to, *tensor, transfers);
}

// If a frame has begun to arrive, its rest arrives soon, or its sender is lost.
constexpr absl::Duration kToEnd = absl::Seconds(1);

}  // namespace

Wire::Wire(client::Group& group)
    : group_(group), by_exchange_(group.placement() != Placement::kDevice) {}

void Wire::Begin() {
  by_memory_ = IsByMemory(group_);
  eager_limit_ = EagerLimitOf(group_);
  torn_ = false;
}

int Wire::RoomFor(const Frame& frame) const {
  const auto bytes = std::max(static_cast<int64_t>(frame.bytes.size()), kFrameHeaderBytes);
  if (!by_memory_) return bytes > kFrameBytes ? 2 : 1;
  int64_t pieces = PiecesOf(bytes);
  for (const Tensor* const tensor : frame.behind) pieces += PiecesOf(tensor->bytes());
  return static_cast<int>(pieces);
}

absl::Status Wire::Put(absl::Span<const int> peers, absl::Span<Frame> frames,
                       const CallOptions& options) {
  if (!by_exchange_) {
    const CallDeadline deadline(options);
    for (size_t i = 0; i < peers.size(); ++i) {
      COHORT_RETURN_IF_ERROR(
          group_.SendObject(EncodeFrame(std::move(frames[i])), peers[i], deadline.Left()));
    }
    return absl::OkStatus();
  }
  absl::InlinedVector<std::string, 2> encoded(frames.size());
  std::vector<TensorTransfer> transfers;
  for (size_t i = 0; i < peers.size(); ++i) {
    AddFrame(peers[i], std::move(frames[i]), &encoded[i], &transfers);
  }
  torn_ = true;  // unless all of them go
  COHORT_RETURN_IF_ERROR(group_.Exchange(transfers, options));
  torn_ = false;
  return absl::OkStatus();
}

absl::Status Wire::Go(int peer, Frame frame, absl::Span<const Tensor* const> tensors,
                      const CallOptions& options) {
  const CallDeadline deadline(options);
  std::string bytes;
  std::vector<TensorTransfer> on_host;
  if (by_exchange_) {
    on_host.reserve(tensors.size() + 1);
    AddFrame(peer, std::move(frame), &bytes, &on_host);
  } else {
    COHORT_RETURN_IF_ERROR(
        group_.SendObject(EncodeFrame(std::move(frame)), peer, deadline.LeftOnHost()));
  }
  torn_ = true;  // unless all of it goes
  COHORT_RETURN_IF_ERROR(Move(/*sends=*/true, peer, tensors, std::move(on_host), deadline));
  torn_ = false;
  return absl::OkStatus();
}

absl::Status Wire::TakeTensors(int peer, absl::Span<const Tensor* const> tensors,
                               const CallOptions& options) {
  const CallDeadline deadline(options);
  std::vector<TensorTransfer> on_host;
  on_host.reserve(tensors.size());
  return Move(/*sends=*/false, peer, tensors, std::move(on_host), deadline);
}

absl::Status Wire::Move(bool sends, int peer, absl::Span<const Tensor* const> tensors,
                        std::vector<TensorTransfer> on_host, const CallDeadline& deadline) {
  std::vector<TensorTransfer> on_device;
  for (const Tensor* const tensor : tensors) {
    (tensor->device().is_host() ? on_host : on_device).push_back({sends, peer, *tensor});
  }
  if (!on_host.empty()) {
    COHORT_RETURN_IF_ERROR(group_.Exchange(on_host, deadline.LeftOnHost()));
  }
  return on_device.empty() ? absl::OkStatus() : group_.Exchange(on_device, deadline.Left());
}

absl::StatusOr<Wire::Came> Wire::Get(absl::Span<const int> peers, int64_t max_bytes,
                                     const CallOptions& options) {
  if (!by_exchange_) return GetObject(peers, max_bytes, options);
  const CallDeadline deadline(options);
  COHORT_ASSIGN_OR_RETURN(const MessageInfo first, group_.AwaitMessage(peers, deadline.Left()));
  return Receive(first, deadline);
}

absl::StatusOr<Wire::Came> Wire::GetFound(const MessageInfo& first, const CallOptions& options) {
  const CallDeadline deadline(options);
  return Receive(first, deadline);
}

absl::StatusOr<Wire::Came> Wire::Receive(const MessageInfo& first, const CallDeadline& deadline) {
  torn_ = true;  // unless all of it comes, and is a frame
  const auto malformed = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("from rank ", first.peer, ": a malformed message: ", what));
  };
  if (first.type != DataType::kU8 || first.count < kFrameHeaderBytes || first.count > kPieceBytes) {
    return malformed(absl::StrCat(first.count, " ", NameOf(first.type)));
  }
  const auto begun = static_cast<size_t>(first.count);
  std::string bytes(begun, '\0');
  COHORT_RETURN_IF_ERROR(
      group_.Receive(BytesOf(&bytes, 0, begun), first.peer, deadline.Left(kToEnd)));
  absl::StatusOr<Frame> frame = DecodeFrameHeader(bytes);
  if (!frame.ok()) return Of(first.peer, frame.status());
  const int64_t size = EncodedBytes(*frame);
  if (size > eager_limit_) return malformed(absl::StrCat(size, " bytes that no rank asked for"));
  if (first.count != std::min(size, kPieceBytes)) {
    return malformed(absl::StrCat("a piece of ", first.count, " bytes for a frame of ", size));
  }
  bytes.resize(static_cast<size_t>(size));
  if (bytes.size() > begun) {
    absl::InlinedVector<TensorTransfer, 4> rest;
    AddPieces(/*sends=*/false, first.peer, BytesOf(&bytes, begun, bytes.size() - begun), &rest);
    COHORT_RETURN_IF_ERROR(group_.Exchange(rest, deadline.Left(kToEnd)));
  }
  torn_ = false;
  Came came;
  came.peer = first.peer;
  came.frame = *std::move(frame);
  came.frame.bytes = std::move(bytes);
  return came;
}

absl::Status Wire::TakeBehind(int peer, absl::Span<const Tensor* const> tensors,
                              const CallOptions& options) {
  const CallDeadline deadline(options);
  absl::InlinedVector<TensorTransfer, 4> transfers;
  for (const Tensor* const tensor : tensors) {
    AddPieces(/*sends=*/false, peer, *tensor, &transfers);
  }
  torn_ = true;  // unless all of it comes
  COHORT_RETURN_IF_ERROR(group_.Exchange(transfers, deadline.Left(kToEnd)));
  torn_ = false;
  return absl::OkStatus();
}

absl::StatusOr<Wire::Came> Wire::GetObject(absl::Span<const int> peers, int64_t max_bytes,
                                           const CallOptions& options) {
  const Instant deadline = Clock::Steady().Now() + options.timeout.value_or(kTimeout);
  CallOptions glance = options;
  if (peers.size() > 1) glance.timeout = kGlance;
  for (size_t attempt = 0;; ++attempt) {
    Came came;
    came.peer = peers[attempt % peers.size()];
    absl::StatusOr<std::string> object = group_.ReceiveObject(came.peer, glance);
    if (absl::IsDeadlineExceeded(object.status()) && Clock::Steady().Now() < deadline) continue;
    if (!object.ok()) return object.status();
    absl::StatusOr<Frame> frame = DecodeFrameHeader(*object);
    if (!frame.ok()) return Of(came.peer, frame.status());
    const int64_t size = EncodedBytes(*frame);
    if (size != static_cast<int64_t>(object->size()) || size > max_bytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("from rank ", came.peer, ": a malformed message: ", object->size(),
                       " bytes, expected ", size, ", at most ", max_bytes));
    }
    came.frame = *std::move(frame);
    came.frame.bytes = *std::move(object);
    return came;
  }
}

absl::StatusOr<std::optional<MessageInfo>> Wire::Look(absl::Span<const int> peers) {
  if (!by_exchange_) return std::nullopt;
  CallOptions at_once;
  at_once.timeout = absl::ZeroDuration();
  const absl::StatusOr<MessageInfo> come = group_.AwaitMessage(peers, at_once);
  if (absl::IsDeadlineExceeded(come.status())) return std::nullopt;
  COHORT_RETURN_IF_ERROR(come.status());
  return *come;
}

}  // namespace cohort::parallel
