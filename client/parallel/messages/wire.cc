#include "client/parallel/messages/wire.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace cohort::parallel {
namespace {

using client::CallOptions;
using client::TensorTransfer;

// Of an object of one of several peers, before the next one's is looked for. Nobody tells which
// comes first.
constexpr absl::Duration kGlance = absl::Milliseconds(5);
// Of receives of objects without a timeout of their own, as the group's.
constexpr absl::Duration kTimeout = absl::Seconds(300);

absl::Status Of(int peer, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("from rank ", peer, ": ", status.message()));
}

Tensor BytesOf(std::string* bytes, size_t begin, size_t size) {
  return Tensor(&(*bytes)[begin], DataType::kU8, {static_cast<int64_t>(size)});
}

// The encoded frame in the pieces that travel.
void AddPieces(int peer, std::string* bytes, std::vector<TensorTransfer>* transfers) {
  constexpr auto kFirst = static_cast<size_t>(kFrameBytes);
  if (bytes->size() < kFirst) bytes->resize(kFirst);
  transfers->push_back({true, peer, BytesOf(bytes, 0, kFirst)});
  if (bytes->size() > kFirst) {
    transfers->push_back({true, peer, BytesOf(bytes, kFirst, bytes->size() - kFirst)});
  }
}

}  // namespace

int64_t MostSentAhead(int group_size) {
  // A message up to 8 KiB goes ahead through memory that ranks share. Over sockets it is up to a
  // quarter of what may be under way to a peer, which is less in large groups.
  constexpr int kMany = 16;
  return kFrameBytes + (group_size <= kMany ? int64_t{8} << 10 : int64_t{2} << 10);
}

Wire::Wire(client::Group& group)
    : group_(group), by_exchange_(group.placement() != Placement::kDevice) {}

absl::Status Wire::Put(absl::Span<const int> peers, absl::Span<const Frame> frames,
                       const CallOptions& options) {
  std::vector<std::string> encoded;
  encoded.reserve(frames.size());
  for (const Frame& frame : frames) encoded.push_back(EncodeFrame(frame));
  if (!by_exchange_) {
    for (size_t i = 0; i < peers.size(); ++i) {
      COHORT_RETURN_IF_ERROR(group_.SendObject(encoded[i], peers[i], options));
    }
    return absl::OkStatus();
  }
  std::vector<TensorTransfer> transfers;
  for (size_t i = 0; i < peers.size(); ++i) AddPieces(peers[i], &encoded[i], &transfers);
  return group_.Exchange(transfers, options);
}

absl::Status Wire::Go(int peer, const Frame& frame, absl::Span<const Tensor> tensors,
                      const CallOptions& options) {
  if (!by_exchange_) {
    CallOptions by_host = options;
    by_host.stream.reset();
    COHORT_RETURN_IF_ERROR(group_.SendObject(EncodeFrame(frame), peer, by_host));
  }
  std::string bytes;
  std::vector<TensorTransfer> on_host;
  std::vector<TensorTransfer> on_device;
  if (by_exchange_) {
    bytes = EncodeFrame(frame);
    AddPieces(peer, &bytes, &on_host);
  }
  for (const Tensor& tensor : tensors) {
    (tensor.device().is_host() ? on_host : on_device).push_back({true, peer, tensor});
  }
  if (!on_host.empty()) {
    CallOptions by_host = options;
    by_host.stream.reset();
    COHORT_RETURN_IF_ERROR(group_.Exchange(on_host, by_host));
  }
  return on_device.empty() ? absl::OkStatus() : group_.Exchange(on_device, options);
}

absl::Status Wire::TakeTensors(int peer, absl::Span<const Tensor> tensors,
                               const CallOptions& options) {
  std::vector<TensorTransfer> on_host;
  std::vector<TensorTransfer> on_device;
  for (const Tensor& tensor : tensors) {
    (tensor.device().is_host() ? on_host : on_device).push_back({false, peer, tensor});
  }
  if (!on_host.empty()) {
    CallOptions by_host = options;
    by_host.stream.reset();
    COHORT_RETURN_IF_ERROR(group_.Exchange(on_host, by_host));
  }
  return on_device.empty() ? absl::OkStatus() : group_.Exchange(on_device, options);
}

absl::StatusOr<Wire::Came> Wire::Get(absl::Span<const int> peers, int64_t max_bytes,
                                     const CallOptions& options) {
  if (!by_exchange_) return GetObject(peers, max_bytes, options);
  Came came;
  came.peer = peers[0];
  if (peers.size() > 1) {
    COHORT_ASSIGN_OR_RETURN(came.peer, group_.AwaitMessage(peers, options));
  }
  std::string bytes(static_cast<size_t>(kFrameBytes), '\0');
  COHORT_RETURN_IF_ERROR(group_.Receive(BytesOf(&bytes, 0, bytes.size()), came.peer, options));
  absl::StatusOr<Frame> frame = DecodeFrameHeader(bytes);
  if (!frame.ok()) return Of(came.peer, frame.status());
  const int64_t size = EncodedBytes(*frame);
  if (size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "from rank ", came.peer, ": a malformed message: ", size, " bytes that nobody asked for"));
  }
  bytes.resize(static_cast<size_t>(size));
  if (size > kFrameBytes) {
    constexpr auto kFirst = static_cast<size_t>(kFrameBytes);
    COHORT_RETURN_IF_ERROR(
        group_.Receive(BytesOf(&bytes, kFirst, bytes.size() - kFirst), came.peer, options));
  }
  came.frame = *std::move(frame);
  came.frame.body = bytes.substr(static_cast<size_t>(kFrameHeaderBytes));
  return came;
}

absl::StatusOr<Wire::Came> Wire::GetObject(absl::Span<const int> peers, int64_t max_bytes,
                                           const CallOptions& options) {
  const Instant deadline = Clock::Steady().Now() + options.timeout.value_or(kTimeout);
  CallOptions glance = options;
  if (peers.size() > 1) glance.timeout = kGlance;
  for (size_t turn = 0;; ++turn) {
    Came came;
    came.peer = peers[turn % peers.size()];
    const absl::StatusOr<std::string> object = group_.ReceiveObject(came.peer, glance);
    if (absl::IsDeadlineExceeded(object.status()) && Clock::Steady().Now() < deadline) continue;
    if (!object.ok()) return object.status();
    absl::StatusOr<Frame> frame = DecodeFrameHeader(*object);
    if (!frame.ok()) return Of(came.peer, frame.status());
    const int64_t size = EncodedBytes(*frame);
    if (size != static_cast<int64_t>(object->size()) || size > max_bytes) {
      return absl::InvalidArgumentError(absl::StrCat("from rank ", came.peer,
                                                     ": a malformed message: ", object->size(),
                                                     " bytes that should be ", size));
    }
    came.frame = *std::move(frame);
    came.frame.body = object->substr(static_cast<size_t>(kFrameHeaderBytes));
    return came;
  }
}

absl::StatusOr<bool> Wire::Look(int peer) {
  if (!by_exchange_) return false;
  CallOptions at_once;
  at_once.timeout = absl::ZeroDuration();
  const absl::StatusOr<int> come = group_.AwaitMessage(absl::MakeConstSpan(&peer, 1), at_once);
  if (absl::IsDeadlineExceeded(come.status())) return false;
  if (!come.ok()) return come.status();
  return true;
}

}  // namespace cohort::parallel
