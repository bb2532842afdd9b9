#include "worker/communicator/socket/socket_communicator.h"

#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "base/abort_error.h"
#include "base/status_macros.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"
#include "worker/communicator/mismatch.h"
#include "worker/communicator/socket/transfer/transfer_plan.h"

namespace cohort::worker {
namespace {

constexpr absl::Duration kSpin = absl::Microseconds(50);

// The bytes that a rank may hold for all others, and for one. They are parts of collectives that
// arrived early, and messages that were not received yet. The most of both fits into a link's
// buffers, so that a rank that is busy elsewhere never looks like one whose link is cut.
constexpr int64_t kDirectBytes = int64_t{256} << 10;
constexpr int64_t kMinDirectBytes = int64_t{1} << 10;
constexpr int64_t kMaxDirectBytes = int64_t{128} << 10;
constexpr int64_t kWindowBytes = int64_t{1} << 20;
constexpr int64_t kMinWindowBytes = int64_t{8} << 10;
constexpr int64_t kMaxWindowBytes = int64_t{64} << 10;
// The buffer through which frames arrive.
constexpr size_t kLandingBytes = size_t{64} << 10;

// The share of `all` for each of the other ranks.
int64_t Share(int64_t all, int size, int64_t least, int64_t most) {
  return std::clamp(all / std::max(1, size - 1), least, most);
}

absl::Duration DefaultSpin(int size) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return absl::ZeroDuration();
  return size <= CPU_COUNT(&allowed) ? kSpin : absl::ZeroDuration();
}

}  // namespace

absl::StatusOr<Mesh> SocketCommunicator::ConnectLinks(int rank, const Listener& listener,
                                                      const std::vector<std::string>& addresses,
                                                      const Id128& secret,
                                                      const SocketOptions& options,
                                                      Instant deadline) {
  MeshOptions mesh_options;
  mesh_options.rank = rank;
  mesh_options.addresses = addresses;
  mesh_options.secret = secret;
  mesh_options.streams = 1 + std::max(1, options.streams);
  mesh_options.link_timeout = options.link_timeout;
  mesh_options.names = options.names;
  mesh_options.interrupt_fd = options.interrupt_fd;
  return ConnectMesh(listener, mesh_options, deadline);
}

absl::StatusOr<std::unique_ptr<SocketCommunicator>> SocketCommunicator::Make(
    int rank, Mesh mesh, const SocketOptions& options) {
  const size_t size = mesh.streams.size();
  std::vector<RankSocket> links(size);
  for (size_t peer = 0; peer < size; ++peer) {
    std::vector<RankSocket>& streams = mesh.streams[peer];
    if (streams.empty()) continue;
    links[peer] = std::move(streams.front());
    streams.erase(streams.begin());
  }
  std::unique_ptr<SocketCommunicator> communicator(
      new SocketCommunicator(rank, std::move(links), std::move(mesh.streams),
                             options.spin.value_or(DefaultSpin(static_cast<int>(size)))));
  communicator->names_ = options.names;
  communicator->waits_ = options.waits;
  if (!communicator->event_.is_open()) {
    return absl::ResourceExhaustedError(absl::StrCat("eventfd: ", strerror(errno)));
  }
  return communicator;
}

absl::StatusOr<std::unique_ptr<SocketCommunicator>> SocketCommunicator::Connect(
    int rank, const Listener& listener, const std::vector<std::string>& addresses,
    const Id128& secret, const SocketOptions& options, Instant deadline) {
  COHORT_ASSIGN_OR_RETURN(Mesh mesh,
                          ConnectLinks(rank, listener, addresses, secret, options, deadline));
  return Make(rank, std::move(mesh), options);
}

SocketCommunicator::SocketCommunicator(int rank, std::vector<RankSocket> links,
                                       std::vector<std::vector<RankSocket>> streams,
                                       absl::Duration spin)
    : rank_(rank),
      spin_(spin),
      traffic_(std::move(streams)),
      event_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      landing_(kLandingBytes) {
  const int size = static_cast<int>(links.size());
  direct_bytes_ = Share(kDirectBytes, size, kMinDirectBytes, kMaxDirectBytes);
  const int64_t window = Share(kWindowBytes, size, kMinWindowBytes, kMaxWindowBytes);
  for (int peer = 0; peer < size; ++peer) {
    RankSocket& socket = links[static_cast<size_t>(peer)];
    peers_.push_back(peer == rank
                         ? nullptr
                         : std::make_unique<Peer>(peer, std::move(socket), &traffic_, window));
  }
}

SocketCommunicator::~SocketCommunicator() {
  FrameHeader goodbye;
  goodbye.kind = FrameKind::kGoodbye;
  ForEachPeer([&](Peer& peer) {
    peer.link.SendLast(goodbye);
    peer.link.Close();
  });
}

absl::Status SocketCommunicator::Run(const FlatCall& flat, const void* input, void* output,
                                     Instant deadline) {
  Call call;
  call.flat = flat;
  call.input = static_cast<const char*>(input);
  call.output = static_cast<char*>(output);
  call.rank = rank_;
  call.size = size();
  COHORT_RETURN_IF_ERROR(CheckArguments(call.flat, rank_, size(), input, output));
  call.bytes = flat.count * SizeOf(flat.type);
  const bool direct = call.bytes <= direct_bytes_ || size() == 1;
  COHORT_RETURN_IF_ERROR(ArriveAndWait(call, direct, deadline));
  if (direct) {
    Finish(call);
    return absl::OkStatus();
  }

  Plan(call, &scratch_, &traffic_);
  const absl::Status status =
      Drive([this] { return traffic_.idle(); },
            [&] {
              return absl::StrCat(Describe(call.flat), ": rank ", Names(traffic_.Unfinished()),
                                  " did not finish");
            },
            deadline);
  traffic_.Clear();
  return status;
}

absl::Status SocketCommunicator::ArriveAndWait(const Call& call, bool direct, Instant deadline) {
  if (poisoned_.load(std::memory_order_acquire)) return Poisoned();
  // A frame more, and the others would be behind by more than one operation.
  absl::Status left;
  ForEachPeer([&](Peer& peer) {
    if (peer.link.left()) left.Update(CauseOfLeaving(peer));
  });
  COHORT_RETURN_IF_ERROR(left);
  ++sequence_;
  FrameHeader header;
  header.kind = FrameKind::kOperation;
  header.number = sequence_;
  header.key = KeyOf(call.flat);
  ForEachPeer([&](Peer& peer) {
    const bool with_part = direct && Needs(call.flat, peer.link.rank(), rank_);
    const absl::string_view part(with_part ? PartFor(call, peer.link.rank()) : nullptr,
                                 with_part ? static_cast<size_t>(call.bytes) : 0);
    header.payload_bytes = static_cast<uint32_t>(part.size());
    peer.link.Send(header, part);
  });
  missing_ = 0;
  ForEachPeer([&](Peer& peer) { missing_ += Here(peer.link.rank()) ? 0 : 1; });
  in_barrier_ = true;
  const absl::Status status = Drive([this] { return missing_ == 0; },
                                    [&] {
                                      return absl::StrCat(Describe(call.flat), ": rank ",
                                                          Names(Missing()), " did not come");
                                    },
                                    deadline);
  in_barrier_ = false;
  COHORT_RETURN_IF_ERROR(status);
  COHORT_RETURN_IF_ERROR(Compare(header.key));
  return CheckParts(call, direct);
}

absl::Status SocketCommunicator::Compare(const CollectiveKey& own) const {
  const auto key = [&](int rank) -> const CollectiveKey& {
    return rank == rank_ ? own : arrival(rank, sequence_).key;
  };
  for (int rank = 1; rank < size(); ++rank) {
    if (key(rank) == key(0)) continue;
    return MismatchError(Describe(key(0)), rank, Describe(key(rank)));
  }
  return absl::OkStatus();
}

absl::Status SocketCommunicator::CheckParts(const Call& call, bool direct) {
  for (int rank = 0; rank < size(); ++rank) {
    if (rank == rank_) continue;
    const bool with_part = direct && Needs(call.flat, rank_, rank);
    if (arrival(rank, sequence_).payload_bytes == (with_part ? call.bytes : 0)) continue;
    Poison(absl::StrCat("rank ", Name(rank), " broke the protocol: a part of another size"));
    return Poisoned();
  }
  return absl::OkStatus();
}

void SocketCommunicator::Finish(const Call& call) {
  const FlatCall& flat = call.flat;
  const auto part_of = [&](int rank) {
    return rank == rank_ ? PartFor(call, rank) : arrival(rank, sequence_).payload.data();
  };
  if (Reduces(flat.collective)) {
    if (!Needs(flat, rank_, rank_)) return;
    absl::InlinedVector<const void*, 16> inputs;
    for (int rank = 0; rank < size(); ++rank) inputs.push_back(part_of(rank));
    void* const output = call.output;
    worker::Reduce(flat.type, flat.reduction, inputs, absl::MakeConstSpan(&output, 1), flat.count);
    return;
  }
  for (int rank = 0; rank < size(); ++rank) {
    if (!Needs(flat, rank_, rank)) continue;
    char* const output = OutputFor(call, rank);
    if (output != part_of(rank))
      std::memcpy(output, part_of(rank), static_cast<size_t>(call.bytes));
  }
}

absl::StatusOr<bool> SocketCommunicator::HasArrival(int rank, MessageChannel channel) {
  if (poisoned_.load(std::memory_order_acquire)) return Poisoned();
  Peer& peer = *peers_[static_cast<size_t>(rank)];
  const Mailbox& mailbox = peer.MailboxOf(channel);
  if (mailbox.has_arrival()) return true;
  Read(peer);
  if (poisoned_.load(std::memory_order_acquire)) return Poisoned();
  if (mailbox.has_arrival()) return true;
  if (peer.link.end().empty()) return false;
  if (peer.link.left()) return CauseOfLeaving(peer);
  Lost(rank, "");
  return Poisoned();
}

absl::StatusOr<MessageInfo> SocketCommunicator::AwaitMessage(absl::Span<const int> peers,
                                                             Instant deadline,
                                                             MessageChannel channel) {
  const auto mailbox_of = [&](int peer) -> const Mailbox& {
    return peers_[static_cast<size_t>(peer)]->MailboxOf(channel);
  };
  absl::Status left;
  for (const int peer : peers) {
    const absl::StatusOr<bool> come = HasArrival(peer, channel);
    if (IsLeftError(come.status())) {
      left.Update(come.status());
      continue;
    }
    COHORT_RETURN_IF_ERROR(come.status());
    if (*come) return mailbox_of(peer).next_arrival();
  }
  COHORT_RETURN_IF_ERROR(left);
  if (deadline == absl::InfinitePast()) return no_message_.Of(peers);
  const Mailbox* first = nullptr;
  const auto found = [&] {
    const auto it = std::find_if(peers.begin(), peers.end(),
                                 [&](int peer) { return mailbox_of(peer).has_arrival(); });
    if (it != peers.end()) first = &mailbox_of(*it);
    return first != nullptr;
  };
  watched_ = peers;
  const absl::Status status = DriveUntil(found, deadline);
  watched_ = {};
  if (first != nullptr || found()) return first->next_arrival();
  return absl::IsDeadlineExceeded(status) ? no_message_.Of(peers) : status;
}

absl::Status SocketCommunicator::Exchange(absl::Span<const Transfer> transfers, Instant deadline,
                                          MessageChannel channel) {
  COHORT_RETURN_IF_ERROR(CheckTransfers(transfers, rank_, size(), channel));
  if (poisoned_.load(std::memory_order_acquire)) return Poisoned();
  if (look_for_goodbyes_.exchange(false)) {
    ForEachPeer([this](Peer& peer) { Read(peer); });
  }
  absl::InlinedVector<Posted, 4> all(transfers.size());
  int open = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    all[i].transfer = transfers[i];
    Peer& peer = *peers_[static_cast<size_t>(transfers[i].peer)];
    if (transfers[i].sends && peer.link.left()) {
      all[i].completed = true;
      all[i].status = CauseOfLeaving(peer);
      continue;
    }
    peer.MailboxOf(channel).Post(&all[i], &open);
    // Nothing else would show that a small message was lost.
    if (transfers[i].sends && peer.link.is_broken()) {
      Lost(transfers[i].peer, "it takes no more");
      if (all[i].completed && peer.link.left()) all[i].status = CauseOfLeaving(peer);
    }
  }
  const absl::Status status =
      Drive([&] { return open == 0; },
            [&] {
              for (const Posted& posted : all) {
                if (posted.completed && !traffic_.Needs(posted.transfer.peer)) continue;
                return absl::StrCat(Describe(posted.transfer), ": rank ", posted.transfer.peer,
                                    posted.completed ? " did not finish" : " did not come");
              }
              return std::string("peers did not take all outgoing bytes");
            },
            deadline);
  ForEachPeer([&](Peer& peer) { peer.MailboxOf(channel).Drop(); });
  traffic_.Clear();
  COHORT_RETURN_IF_ERROR(status);
  for (const Posted& posted : all) COHORT_RETURN_IF_ERROR(posted.status);
  return absl::OkStatus();
}

}  // namespace cohort::worker
