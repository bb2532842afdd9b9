// For how long a rank has slept in calls, and for whom.
#ifndef COHORT_WORKER_COMMUNICATOR_WAIT_LOG_H_
#define COHORT_WORKER_COMMUNICATOR_WAIT_LOG_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/rank_set.h"

namespace cohort::worker {

// How long a rank sleeps before it looks again whom it waits for: so much is charged, at most, to
// one who has come meanwhile.
inline constexpr absl::Duration kNotedSleep = absl::Milliseconds(100);

struct WaitedFor {
  int rank = 0;
  absl::Duration time;
};

// Only sleeps count: what is there before a rank has looked and yielded in vain costs nothing here.
// Who waits for several at once waits for each of them all the time. One thread writes, any thread
// or process reads; it may lie in memory of another's, that holds anything.
class WaitLog {
 public:
  // Ranks from here on are not noted.
  static constexpr int kRanks = 1024;

  void Add(const RankSet& ranks, absl::Duration time) {
    for (const int rank : ranks.ToVector()) {
      if (rank < 0 || rank >= kRanks) continue;
      nanoseconds_[rank].fetch_add(absl::ToInt64Nanoseconds(time), std::memory_order_relaxed);
    }
  }

  // The `most` that were waited for longest, the longest first; of ranks below `size`.
  std::vector<WaitedFor> Read(int size, size_t most) const {
    std::vector<WaitedFor> waits;
    for (int rank = 0; rank < std::min(size, kRanks); ++rank) {
      const int64_t time = nanoseconds_[rank].load(std::memory_order_relaxed);
      if (time > 0) waits.push_back({rank, absl::Nanoseconds(time)});
    }
    std::stable_sort(waits.begin(), waits.end(),
                     [](const WaitedFor& a, const WaitedFor& b) { return a.time > b.time; });
    waits.resize(std::min(waits.size(), most));
    return waits;
  }

 private:
  std::atomic<int64_t> nanoseconds_[kRanks] = {};
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_WAIT_LOG_H_
