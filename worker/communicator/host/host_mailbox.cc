#include "worker/communicator/host/host_mailbox.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/abort_error.h"
#include "base/error_ranks.h"
#include "base/rank_set.h"
#include "worker/communicator/arguments.h"
#include "worker/communicator/host/reduce/reduce_kernel.h"

namespace cohort::worker {
namespace {

// The receiver stores messages of this size or larger past the caches.
constexpr int64_t kStreamFrom = int64_t{8} << 20;

// `whole`: the size of the message of which this is a piece.
void CopyOne(void* to, const void* from, int64_t bytes, int64_t whole = 0) {
  Copy(from, absl::MakeConstSpan(&to, 1), bytes,
       whole >= kStreamFrom ? Stores::kStreaming : Stores::kCached);
}

// The size of a message's pieces: its receiver need not wait for the whole message.
int64_t PieceBytes(int64_t message, int64_t most) {
  constexpr int64_t kPieces = 4;
  return std::clamp(message / kPieces, Channel::kSmallBytes, most);
}

// The offset of a piece in its buffer. It moves on from ring to ring: memory that is rewritten soon
// must first be fetched from the reader's cache.
int64_t OffsetOf(uint64_t fragment, int64_t piece, int64_t room) {
  constexpr auto kUnit = static_cast<int64_t>(kApart);
  const int64_t step = (piece + kUnit - 1) / kUnit * kUnit;
  const int64_t offsets = std::max<int64_t>(room / step, 1);
  return static_cast<int64_t>(fragment / Channel::kFragments) % offsets * step;
}

int64_t BytesOf(const Transfer& transfer) { return transfer.count * SizeOf(transfer.type); }

// Reads, once, a word that another process may change at any time.
template <typename T>
T ReadOnce(const T& word) {
  return __atomic_load_n(&word, __ATOMIC_RELAXED);
}

// Describes the count and type that another process has written for a message. If both equal this
// rank's, the tags differ.
std::string DescribeMessage(const Transfer& own, int64_t count, int type) {
  const bool same = count == own.count && type == static_cast<int>(own.type);
  return absl::StrCat(
      count, " ",
      IsDataType(type) ? NameOf(static_cast<DataType>(type)) : absl::string_view("elements"),
      same ? " in a call of another kind" : "");
}

// The bytes of a message with the count and type that another process has written; -1: impossible.
int64_t WholeOf(int64_t count, int type) {
  int64_t bytes = -1;
  if (count < 0 || !IsDataType(type) ||
      __builtin_mul_overflow(count, SizeOf(static_cast<DataType>(type)), &bytes)) {
    return -1;
  }
  return bytes;
}

}  // namespace

HostMailbox::HostMailbox(const HostSharedMemory& space, const RankHeaps& heaps,
                         const FutexWaiter& waiter, int rank, MessageChannel channel)
    : space_(space),
      heaps_(heaps),
      waiter_(waiter),
      rank_(rank),
      channel_(channel),
      peers_(static_cast<size_t>(space.ranks())) {}

absl::Status HostMailbox::Exchange(absl::Span<const Transfer> transfers, Instant deadline) {
  if (waiter_.poisoned()) return waiter_.CauseOfPoison();
  LineUp(transfers);
  mismatches_.clear();
  absl::Status left;
  if (waiter_.has_left()) left = DropLeft(transfers, /*only_sends=*/true);
  Pass(transfers);
  // The condition must stay true once it is: a pass that moves something may be followed by one
  // that does not.
  while (!current_.empty()) {
    bool moved = false;
    const absl::Status status = waiter_.Await([&] { return moved = Pass(transfers) || moved; },
                                              deadline, [&] { return PeersOfTheRest(transfers); });
    if (absl::IsDeadlineExceeded(status)) return GiveUp(transfers);
    if (IsLeftError(status)) {
      left.Update(DropLeft(transfers, /*only_sends=*/false));
      continue;
    }
    if (!status.ok()) return status;
    if (waiter_.poisoned()) return waiter_.CauseOfPoison();
    // Only its sender knows how long a refused message is: it may never end.
    if (!mismatches_.empty() && Clock::Steady().Now() >= deadline) return GiveUp(transfers);
  }
  return mismatches_.empty() ? left
                             : absl::InvalidArgumentError(absl::StrJoin(mismatches_, "; "));
}

absl::Status HostMailbox::DropLeft(absl::Span<const Transfer> transfers, bool only_sends) {
  const RankSet ranks = waiter_.Left();
  absl::Status cause;
  size_t kept = 0;
  for (const int index : current_) {
    const Transfer& transfer = transfers[static_cast<size_t>(index)];
    if (ranks.Contains(transfer.peer) && (transfer.sends || !only_sends)) {
      cause.Update(waiter_.CauseOfLeaving(transfer.peer));
    } else {
      current_[kept++] = index;
    }
  }
  current_.resize(kept);
  return cause;
}

absl::StatusOr<MessageInfo> HostMailbox::AwaitMessage(absl::Span<const int> peers,
                                                      Instant deadline) {
  if (waiter_.poisoned()) return waiter_.CauseOfPoison();
  int first = -1;
  const auto find = [&] {
    const auto it =
        std::find_if(peers.begin(), peers.end(), [this](int peer) { return Begun(peer); });
    if (it != peers.end()) first = *it;
    return first >= 0;
  };
  if (find()) return InfoOf(first);
  const auto awaited = [&] {
    RankSet ranks;
    for (const int peer : peers) ranks.Add(peer);
    return ranks;
  };
  absl::Status status;
  if (deadline == absl::InfinitePast() || Clock::Steady().Now() >= deadline) {
    // Without time it looks once, and skips the looks that precede a sleep.
    if (!waiter_.has_left()) return no_message_.Of(peers);
    status = waiter_.CheckLeft(awaited());
    if (status.ok()) return no_message_.Of(peers);
  } else {
    status = waiter_.Await(find, deadline, awaited);
  }
  if (find()) return InfoOf(first);
  return absl::IsDeadlineExceeded(status) ? no_message_.Of(peers) : status;
}

absl::StatusOr<MessageInfo> HostMailbox::InfoOf(int peer) {
  const FragmentLine& line = ChannelFrom(peer).line(peers_[static_cast<size_t>(peer)].taken + 1);
  const int64_t count = ReadOnce(line.count);
  const uint8_t type = ReadOnce(line.type);
  if (WholeOf(count, type) >= 0) return MessageInfo{peer, static_cast<DataType>(type), count};
  Poison(peer, absl::StrCat("announces a message of ", count, " elements of type ", type));
  return waiter_.CauseOfPoison();
}

bool HostMailbox::Begun(int peer) const {
  const uint64_t next = peers_[static_cast<size_t>(peer)].taken + 1;
  const FragmentLine& line = ChannelFrom(peer).line(next);
  return line.number.load(std::memory_order_acquire) == next;
}

void HostMailbox::LineUp(absl::Span<const Transfer> transfers) {
  ++exchange_;
  current_.clear();
  progress_.assign(transfers.size(), Progress());
  for (int i = 0; i < static_cast<int>(transfers.size()); ++i) {
    const Transfer& transfer = transfers[static_cast<size_t>(i)];
    Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
    Queue& queue = transfer.sends ? peer.sends : peer.receives;
    if (queue.exchange == exchange_) {
      progress_[static_cast<size_t>(queue.last)].next = i;
    } else {
      queue.exchange = exchange_;
      current_.push_back(i);
    }
    queue.last = i;
  }
}

RankSet HostMailbox::PeersOfTheRest(absl::Span<const Transfer> transfers) const {
  RankSet peers;
  for (const int index : current_) peers.Add(transfers[static_cast<size_t>(index)].peer);
  return peers;
}

bool HostMailbox::Pass(absl::Span<const Transfer> transfers) {
  bool moved = false;
  size_t waiting = 0;
  for (int index : current_) {
    while (index != kNone) {
      const Transfer& transfer = transfers[static_cast<size_t>(index)];
      Progress& progress = progress_[static_cast<size_t>(index)];
      // Wakes the peers before this rank copies much.
      if (!owed_.empty() && BytesOf(transfer) > Channel::kSmallBytes) WakePeers();
      if (transfer.sends ? Send(transfer, progress) : Receive(transfer, progress)) {
        moved = true;
        Owe(transfer.peer);
      }
      if (!progress.done) break;
      index = progress.next;
    }
    if (index != kNone) current_[waiting++] = index;
  }
  current_.resize(waiting);
  if (!owed_.empty()) WakePeers();
  return moved;
}

void HostMailbox::Owe(int peer) {
  bool& owed = peers_[static_cast<size_t>(peer)].owed;
  if (!owed) owed_.push_back(peer);
  owed = true;
}

void HostMailbox::WakePeers() {
  const bool somebody = waiter_.SomebodySleeps();
  for (const int peer : owed_) {
    if (somebody) waiter_.WakeNow(peer);
    peers_[static_cast<size_t>(peer)].owed = false;
  }
  owed_.clear();
}

int64_t HostMailbox::OffsetInHeap(const Transfer& transfer) const {
  const shm::Segment* const heap = heaps_[static_cast<size_t>(rank_)].get();
  if (heap == nullptr) return -1;
  return heap->OffsetOf(transfer.data, static_cast<size_t>(BytesOf(transfer))).value_or(-1);
}

bool HostMailbox::Send(const Transfer& transfer, Progress& progress) {
  Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
  Channel& channel = ChannelTo(transfer.peer);
  const int64_t bytes = BytesOf(transfer);
  // The sender does not wait for the receiver of a message that the channel holds.
  const bool eager = bytes <= Channel::kSmallBytes ||
                     (bytes <= space_.eager_send_bytes() && OffsetInHeap(transfer) < 0);
  // The receiver writes this line all the time; reading it costs both ranks.
  if (!eager || peer.sent - peer.seen_taken >= Channel::kFragments) {
    peer.seen_taken = channel.taken.number.load(std::memory_order_acquire);
  }
  bool moved = false;
  while (!progress.begun || progress.bytes < bytes) {
    if (peer.sent - peer.seen_taken >= Channel::kFragments) break;
    const uint64_t number = peer.sent + 1;
    FragmentLine& line = channel.line(number);
    if (!progress.begun) progress.first = number;
    progress.begun = true;
    line.type = static_cast<uint8_t>(transfer.type);
    line.tag = transfer.tag;
    line.count = transfer.count;
    line.offset = eager ? -1 : OffsetInHeap(transfer);
    const char* const data = static_cast<const char*>(transfer.data) + progress.bytes;
    int64_t piece = std::min(bytes - progress.bytes, PieceBytes(bytes, space_.fragment_bytes()));
    if (line.offset >= 0) {
      piece = bytes;
      line.bytes = 0;
    } else {
      void* room = line.data;
      if (piece > static_cast<int64_t>(FragmentLine::kDataBytes)) {
        line.offset = OffsetOf(number, piece, space_.fragment_bytes());
        room = space_.fragment(rank_, transfer.peer, number) + line.offset;
      }
      store_choice_.Run(
          piece, [&](Stores stores) { Copy(data, absl::MakeConstSpan(&room, 1), piece, stores); });
      line.bytes = static_cast<uint32_t>(piece);
    }
    line.number.store(number, std::memory_order_release);
    peer.sent = number;
    progress.bytes += piece;
    moved = true;
  }
  if (moved) PrefetchToWrite(&channel.line(peer.sent + 1));
  if (!progress.begun || progress.bytes < bytes) return moved;
  if (eager) {
    progress.done = true;
  } else if (peer.seen_taken >= peer.sent) {
    // While the message is not done, no fragment after its last one is on the way.
    progress.done = true;
    moved = true;
    if (channel.taken.mismatched == progress.first) {
      mismatches_.push_back(absl::StrCat(
          Describe(transfer), ": it expected ",
          DescribeMessage(transfer, channel.taken.expected_count, channel.taken.expected_type)));
    }
  }
  return moved;
}

bool HostMailbox::Receive(const Transfer& transfer, Progress& progress) {
  Peer& peer = peers_[static_cast<size_t>(transfer.peer)];
  Channel& channel = ChannelFrom(transfer.peer);
  bool moved = false;
  while (!progress.done) {
    const uint64_t number = peer.taken + 1;
    const FragmentLine& line = channel.line(number);
    if (line.number.load(std::memory_order_acquire) != number) break;
    moved = true;
    if (!progress.begun) {
      progress.begun = true;
      progress.first = number;
      const int64_t count = ReadOnce(line.count);
      const uint8_t type = ReadOnce(line.type);
      if (count != transfer.count || type != static_cast<uint8_t>(transfer.type) ||
          ReadOnce(line.tag) != transfer.tag) {
        progress.mismatched = true;
        progress.whole = WholeOf(count, type);
        mismatches_.push_back(
            absl::StrCat(Describe(transfer), ": it sent ", DescribeMessage(transfer, count, type)));
        channel.taken.expected_count = transfer.count;
        channel.taken.expected_type = static_cast<uint8_t>(transfer.type);
        channel.taken.mismatched = number;
      }
    }
    if (!Take(transfer, line, space_.fragment(transfer.peer, rank_, number), progress)) {
      return true;
    }
    peer.taken = number;
    channel.taken.number.store(number, std::memory_order_release);
    // Leaves the loop now and then, so that Exchange checks the deadline.
    if (progress.mismatched && number % Channel::kFragments == 0) break;
  }
  return moved;
}

bool HostMailbox::Take(const Transfer& transfer, const FragmentLine& line, const char* buffer,
                       Progress& progress) {
  const int64_t offset = ReadOnce(line.offset);
  const int64_t piece = ReadOnce(line.bytes);
  const int64_t whole = progress.mismatched ? progress.whole : BytesOf(transfer);
  if (offset >= 0 && piece == 0) {
    if (progress.mismatched) {
      progress.done = true;
      return true;
    }
    const auto& heap = heaps_[static_cast<size_t>(transfer.peer)];
    const char* const from =
        heap == nullptr ? nullptr : heap->At(offset, static_cast<size_t>(whole));
    if (from == nullptr) {
      Poison(transfer.peer, "names memory that it does not have");
      return false;
    }
    CopyOne(transfer.data, from, whole, whole);
    progress.done = true;
    return true;
  }
  const bool inside = piece <= static_cast<int64_t>(FragmentLine::kDataBytes);
  const int64_t room = channel_ == MessageChannel::kControl ? 0 : space_.fragment_bytes();
  const bool fits = inside || (offset >= 0 && offset <= room - piece);
  if (!fits || piece > whole - progress.bytes || (piece == 0 && whole > 0)) {
    Poison(transfer.peer, "sends a fragment that does not fit its message");
    return false;
  }
  if (!progress.mismatched && piece > 0) {
    CopyOne(static_cast<char*>(transfer.data) + progress.bytes,
            inside ? line.data : buffer + offset, piece, whole);
  }
  progress.bytes += piece;
  progress.done = progress.bytes == whole;
  return true;
}

void HostMailbox::Drain(Instant deadline) const {
  const auto untaken = [this] {
    RankSet ranks;
    for (int peer = 0; peer < space_.ranks(); ++peer) {
      const uint64_t sent = peers_[static_cast<size_t>(peer)].sent;
      if (ChannelTo(peer).taken.number.load(std::memory_order_acquire) < sent) {
        ranks.Add(peer);
      }
    }
    return ranks.Minus(waiter_.Left());
  };
  waiter_.Await([&] { return untaken().empty(); }, deadline, untaken).IgnoreError();
}

absl::Status HostMailbox::GiveUp(absl::Span<const Transfer> transfers) {
  std::vector<std::string> waiting;
  RankSet missing;
  bool begun = false;
  for (size_t i = 0; i < transfers.size(); ++i) {
    const Progress& progress = progress_[i];
    begun = begun || (progress.begun && !progress.done);
    if (progress.done) continue;
    waiting.push_back(Describe(transfers[i]));
    missing.Add(transfers[i].peer);
  }
  const std::string text = absl::StrCat(absl::StrJoin(waiting, ", "), ": it did not come");
  // If no message has begun, the communicator stays usable.
  if (begun) waiter_.SetPoison(absl::StrCat("rank ", rank_, " gave up ", text));
  return MissingRanksError(text, missing.ToRanges());
}

void HostMailbox::Poison(int culprit, absl::string_view what) {
  waiter_.SetPoison(absl::StrCat("rank ", culprit, " ", what));
}

}  // namespace cohort::worker
