#include "client/collective/peer_stats.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace cohort::client {
namespace {

int64_t BytesOfRow(absl::Span<const int64_t> sizes, int64_t bytes) {
  const int64_t rows = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  return rows == 0 ? 0 : bytes / rows;
}

}  // namespace

void PeerCounters::Reset(int rank, int size) {
  MutexLock lock(&reset_mutex_);
  rank_ = rank >= 0 && rank < size ? rank : 0;
  size_ = std::max(size, 1);
  peers_ = std::make_unique<Counters[]>(static_cast<size_t>(size_));
  for (std::atomic<int64_t>* counter : {&each_.bytes_sent, &each_.messages_sent,
                                        &each_.bytes_received, &each_.messages_received}) {
    counter->store(0, std::memory_order_relaxed);
  }
}

std::vector<PeerStats> PeerCounters::Read() const {
  MutexLock lock(&reset_mutex_);
  std::vector<PeerStats> stats(static_cast<size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) {
    if (rank == rank_) continue;
    PeerStats& peer = stats[static_cast<size_t>(rank)];
    const Counters* const counted[] = {&each_, &peers_[static_cast<size_t>(rank)]};
    for (const Counters* const from : counted) {
      peer.bytes_sent += from->bytes_sent.load(std::memory_order_relaxed);
      peer.messages_sent += from->messages_sent.load(std::memory_order_relaxed);
      peer.bytes_received += from->bytes_received.load(std::memory_order_relaxed);
      peer.messages_received += from->messages_received.load(std::memory_order_relaxed);
    }
  }
  return stats;
}

void PeerCounters::CountSendParts(absl::Span<const int64_t> sizes, int64_t bytes) {
  const int64_t row = BytesOfRow(sizes, bytes);
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    Sent(At(static_cast<int>(rank)), sizes[rank] * row);
  }
}

void PeerCounters::CountReceiveParts(absl::Span<const int64_t> sizes, int64_t bytes) {
  const int64_t row = BytesOfRow(sizes, bytes);
  for (size_t rank = 0; rank < sizes.size(); ++rank) {
    Received(At(static_cast<int>(rank)), sizes[rank] * row);
  }
}

}  // namespace cohort::client
