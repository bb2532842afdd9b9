// The progress of a call: it moves bytes in and out until it is done, or ends early.
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "absl/algorithm/container.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/abort_error.h"
#include "base/cpu_pause.h"
#include "base/error_ranks.h"
#include "base/status_macros.h"
#include "base/text/printable.h"
#include "worker/communicator/socket/mesh/poll_until.h"
#include "worker/communicator/socket/socket_communicator.h"

namespace cohort::worker {
namespace {

// Rounds that moved something, between two looks at the clock and at all links: large data must not
// hide that a rank has aborted.
constexpr int kRoundsBetween = 16;

}  // namespace

RankSet SocketCommunicator::Missing() const {
  RankSet missing;
  for (int rank = 0; rank < size(); ++rank) {
    if (rank != rank_ && !Here(rank)) missing.Add(rank);
  }
  return missing;
}

std::string SocketCommunicator::Names(const RankSet& ranks) const {
  RankSet named;
  for (const int rank : ranks.ToVector()) named.Add(Name(rank));
  return named.ToString();
}

bool SocketCommunicator::Flushed() {
  bool flushed = true;
  ForEachPeer([&](Peer& peer) {
    if (peer.link.has_unsent()) peer.link.Flush();
    flushed = flushed && !peer.link.has_unsent();
  });
  return flushed;
}

bool SocketCommunicator::Waits(const Peer& peer) const {
  return (in_barrier_ && !Here(peer.link.rank())) || peer.mailbox.waits() || peer.control.waits() ||
         absl::c_linear_search(watched_, peer.link.rank());
}

RankSet SocketCommunicator::Awaited() {
  RankSet ranks;
  ForEachPeer([&](Peer& peer) {
    const int rank = peer.link.rank();
    if (Waits(peer) || traffic_.Needs(rank)) ranks.Add(Name(rank));
  });
  return ranks;
}

absl::Status SocketCommunicator::CauseOfLeaving(const Peer& peer) const {
  return LeftError(absl::StrCat("rank ", Name(peer.link.rank()), " left the group"));
}

void SocketCommunicator::CheckEnd(Peer& peer) {
  if (peer.link.end().empty()) return;
  if (peer.link.left() && !traffic_.Needs(peer.link.rank())) {
    const absl::Status cause = CauseOfLeaving(peer);
    if (in_barrier_ && !Here(peer.link.rank())) left_.Update(cause);
    peer.mailbox.FailWaiting(cause);
    peer.control.FailWaiting(cause);
    if (absl::c_linear_search(watched_, peer.link.rank())) left_.Update(cause);
    return;
  }
  // The other streams say themselves where they end, unless the way to that rank is cut.
  const bool cut = !peer.link.ended_in_order() && traffic_.Needs(peer.link.rank());
  if (!cut && !Waits(peer)) return;
  Poison(absl::StrCat("rank ", Name(peer.link.rank()), " is gone: ", peer.link.end()));
}

bool SocketCommunicator::Read(Peer& peer) {
  if (!peer.link.end().empty()) return false;
  const absl::StatusOr<bool> some = peer.link.Read(*this, landing_);
  if (!some.ok()) {
    Poison(absl::StrCat("rank ", Name(peer.link.rank()),
                        " broke the protocol: ", some.status().message()));
    return false;
  }
  CheckEnd(peer);
  return *some;
}

void SocketCommunicator::Lost(int rank, const std::string& reason) {
  // It may have said why.
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  while (!poisoned_.load() && Read(peer)) {
  }
  if (peer.link.left() && !traffic_.Needs(rank)) return CheckEnd(peer);
  Poison(absl::StrCat("rank ", Name(rank),
                      " is gone: ", peer.link.end().empty() ? reason : peer.link.end()));
}

bool SocketCommunicator::Advance() {
  bool any = false;
  if (!traffic_.idle()) {
    const Traffic::Moved moved = traffic_.Move();
    if (moved.lost_rank >= 0) Lost(moved.lost_rank, moved.reason);
    if (moved.any) return true;
  }
  ForEachPeer([&](Peer& peer) {
    if (Waits(peer) && !poisoned_.load(std::memory_order_relaxed)) any = Read(peer) || any;
  });
  return any;
}

absl::Status SocketCommunicator::Drive(absl::FunctionRef<bool()> finished,
                                       absl::FunctionRef<std::string()> late, Instant deadline) {
  const absl::Status status = DriveUntil(finished, deadline);
  return absl::IsDeadlineExceeded(status) ? GiveUp(late()) : status;
}

absl::Status SocketCommunicator::DriveUntil(absl::FunctionRef<bool()> finished, Instant deadline) {
  left_ = absl::OkStatus();
  ForEachPeer([this](Peer& peer) { CheckEnd(peer); });
  Instant idle_since = absl::InfiniteFuture();
  int rounds = 0;
  while (true) {
    if (poisoned_.load(std::memory_order_acquire)) return Poisoned();
    if (Flushed() && finished()) return absl::OkStatus();
    if (!left_.ok()) return left_;
    const bool moved = Advance();
    if (moved) {
      idle_since = absl::InfiniteFuture();
      if (++rounds % kRoundsBetween != 0) continue;
    }
    const Instant now = Clock::Steady().Now();
    if (now >= deadline) {
      // A call whose time is over succeeds if it has finished by now.
      return Flushed() && finished() ? absl::OkStatus() : absl::DeadlineExceededError("");
    }
    idle_since = std::min(idle_since, now);
    if (moved) {
      Sleep(now);
    } else if (now - idle_since < spin_) {
      CpuPause();
    } else if (waits_ == nullptr) {
      Sleep(deadline);
    } else {
      const RankSet awaited = Awaited();
      Sleep(std::min(deadline, now + kLoggedSleep));
      waits_->Add(awaited, Clock::Steady().Now() - now);
    }
  }
}

absl::Status SocketCommunicator::GiveUp(const std::string& text) {
  const std::vector<RankRange> missing = Awaited().ToRanges();
  if (!Poison(absl::StrCat("rank ", Name(rank_), " gave up ", text))) return Poisoned();
  return MissingRanksError(text, missing);
}

void SocketCommunicator::Sleep(Instant deadline) {
  polled_.clear();
  polled_peers_.clear();
  bool has_input = false;  // that a TLS session took from its socket
  ForEachPeer([this, &has_input](Peer& peer) {
    if (!peer.link.end().empty()) return;
    has_input = has_input || peer.link.HasInput();
    const int events = POLLIN | (peer.link.has_unsent() ? POLLOUT : 0);
    polled_.push_back({peer.link.fd(), static_cast<short>(events), 0});
    polled_peers_.push_back(&peer);
  });
  polled_.push_back({event_.get(), POLLIN, 0});
  has_input = traffic_.AddInterest(&polled_) || has_input;
  if (!PollUntil(polled_, has_input ? absl::InfinitePast() : deadline) && !has_input) return;
  for (size_t i = 0; i < polled_peers_.size(); ++i) {
    if ((polled_[i].revents & ~POLLOUT) == 0 && !polled_peers_[i]->link.HasInput()) continue;
    if (poisoned_.load(std::memory_order_relaxed)) return;
    Read(*polled_peers_[i]);
  }
}

absl::Status SocketCommunicator::OnHeader(Link& link, const FrameHeader& header, char** sink) {
  Peer& peer = *peers_[static_cast<size_t>(link.rank())];
  switch (header.kind) {
    case FrameKind::kOperation: {
      Arrival& arrival = peer.arrivals[header.number % 2];
      if (header.number < sequence_ || header.number > sequence_ + 1 ||
          arrival.sequence >= header.number) {
        return absl::InternalError("an operation out of sequence");
      }
      if (header.payload_bytes > direct_bytes_) return absl::InternalError("too large a part");
      if (header.payload_bytes > 0 && arrival.payload.empty()) {
        arrival.payload.resize(static_cast<size_t>(direct_bytes_));
      }
      *sink = arrival.payload.data();
      return absl::OkStatus();
    }
    case FrameKind::kAbort:
      if (header.payload_bytes > kMaxAbortBytes) return absl::InternalError("too long a cause");
      *sink = peer.abort_text;
      return absl::OkStatus();
    case FrameKind::kGoodbye:
      return header.payload_bytes == 0 ? absl::OkStatus()
                                       : absl::InternalError("too long a goodbye");
    case FrameKind::kControl:
    case FrameKind::kControlCredit:
      return peer.control.OnHeader(header, sink);
    default:
      return peer.mailbox.OnHeader(header, sink);
  }
}

absl::Status SocketCommunicator::OnFrame(Link& link, const FrameHeader& header) {
  Peer& peer = *peers_[static_cast<size_t>(link.rank())];
  switch (header.kind) {
    case FrameKind::kOperation: {
      Arrival& arrival = peer.arrivals[header.number % 2];
      arrival.sequence = header.number;
      arrival.key = header.key;
      arrival.payload_bytes = header.payload_bytes;
      if (in_barrier_ && header.number == sequence_) --missing_;
      return absl::OkStatus();
    }
    case FrameKind::kAbort:
      OnAbort(link.rank(), Printable({peer.abort_text, header.payload_bytes}));
      return absl::OkStatus();
    case FrameKind::kGoodbye:
      link.set_leaving();
      return absl::OkStatus();
    case FrameKind::kControl:
    case FrameKind::kControlCredit:
      return peer.control.OnFrame(header);
    default:
      return peer.mailbox.OnFrame(header);
  }
}

void SocketCommunicator::OnAbort(int rank, const std::string& cause) {
  // A cause that names no rank gets the rank that sent it.
  if (cause.empty()) {
    Poison(absl::StrCat("rank ", Name(rank), " ended the communicator and gave no cause"));
  } else {
    Poison(absl::StartsWith(cause, "rank ") ? cause
                                            : absl::StrCat("rank ", Name(rank), " says: ", cause));
  }
}

bool SocketCommunicator::Poison(absl::string_view cause) {
  {
    MutexLock lock(&mutex_);
    if (!cause_.ok()) return false;
    cause_ = AbortError(cause);
    poisoned_.store(true, std::memory_order_release);
  }
  const absl::string_view text = cause.substr(0, kMaxAbortBytes);
  FrameHeader header;
  header.kind = FrameKind::kAbort;
  header.payload_bytes = static_cast<uint32_t>(text.size());
  ForEachPeer([&](Peer& peer) { peer.link.SendLast(header, text); });
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = write(event_.get(), &one, sizeof(one));
  return true;
}

absl::Status SocketCommunicator::Poisoned() {
  MutexLock lock(&mutex_);
  return cause_;
}

void SocketCommunicator::Abort(absl::string_view cause) { Poison(cause); }

}  // namespace cohort::worker
