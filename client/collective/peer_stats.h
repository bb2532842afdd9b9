// The payload that a rank has exchanged with each other rank of its group.
//
//   for (const PeerStats& peer : group->Stats()) total += peer.bytes_sent;
#ifndef COHORT_CLIENT_COLLECTIVE_PEER_STATS_H_
#define COHORT_CLIENT_COLLECTIVE_PEER_STATS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "base/threads/mutex.h"

namespace cohort::client {

struct PeerStats {
  int64_t bytes_sent = 0;
  int64_t messages_sent = 0;
  int64_t bytes_received = 0;
  int64_t messages_received = 0;
};

// The counters behind Group::Stats. One thread at a time counts, without a lock and without an
// atomic read-modify-write; any thread reads.
class PeerCounters {
 public:
  // Sets all counters to 0. Only the thread that counts calls it.
  void Reset(int rank, int size);
  // By rank. The own rank has 0.
  std::vector<PeerStats> Read() const;

  // Exchanged with every other rank: the given bytes with each, or its part of `bytes`.
  void CountEach(int64_t sent, int64_t received) {
    Sent(each_, sent);
    Received(each_, received);
  }
  void CountSendEach(int64_t bytes) { Sent(each_, bytes); }
  void CountReceiveEach(int64_t bytes) { Received(each_, bytes); }
  void CountEachPart(int64_t bytes) { CountEach(bytes / size_, bytes / size_); }
  // From the root to every other rank, or from every other rank to the root.
  void CountFromRoot(int root, int64_t bytes) {
    root == rank_ ? Sent(each_, bytes) : Received(At(root), bytes);
  }
  void CountToRoot(int root, int64_t bytes) {
    root == rank_ ? Received(each_, bytes) : Sent(At(root), bytes);
  }
  // One message to or from one rank.
  void CountSend(int peer, int64_t bytes) { Sent(At(peer), bytes); }
  void CountReceive(int peer, int64_t bytes) { Received(At(peer), bytes); }
  // Parts by rank, with `bytes` in all, to or from every other rank.
  void CountSendParts(absl::Span<const int64_t> sizes, int64_t bytes);
  void CountReceiveParts(absl::Span<const int64_t> sizes, int64_t bytes);
  // The root gets from every other rank its part of `bytes`; another rank sends `own` bytes to the
  // root.
  void CountPartsToRoot(int root, absl::Span<const int64_t> sizes, int64_t bytes, int64_t own) {
    root == rank_ ? CountReceiveParts(sizes, bytes) : CountSend(root, own);
  }

 private:
  struct Counters {
    std::atomic<int64_t> bytes_sent{0};
    std::atomic<int64_t> messages_sent{0};
    std::atomic<int64_t> bytes_received{0};
    std::atomic<int64_t> messages_received{0};
  };

  // One thread writes, so a load and a store are enough.
  static void Add(std::atomic<int64_t>& to, int64_t number) {
    to.store(to.load(std::memory_order_relaxed) + number, std::memory_order_relaxed);
  }
  static void Sent(Counters& to, int64_t bytes) {
    Add(to.bytes_sent, bytes);
    Add(to.messages_sent, 1);
  }
  static void Received(Counters& to, int64_t bytes) {
    Add(to.bytes_received, bytes);
    Add(to.messages_received, 1);
  }

  // A number that is not a rank counts as the own rank, which Read leaves out.
  Counters& At(int rank) {
    return peers_[static_cast<size_t>(rank >= 0 && rank < size_ ? rank : rank_)];
  }

  int rank_ = 0;
  int size_ = 1;
  Counters each_;  // of every other rank alike
  // By rank, in addition to `each_`.
  std::unique_ptr<Counters[]> peers_ = std::make_unique<Counters[]>(1);
  mutable Mutex reset_mutex_;  // Reset against Read
};

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_PEER_STATS_H_
