// How long a rank has slept in calls, and which ranks it waited for.
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

// The longest sleep before a rank determines again which ranks it waits for. A rank that arrives
// during a sleep is charged at most this much too much.
inline constexpr absl::Duration kLoggedSleep = absl::Milliseconds(100);

struct WaitedFor {
  int rank = 0;
  absl::Duration time;
};

// Only sleeps count: a wait that ends while the rank still looks or yields costs nothing here. A
// rank that waits for several ranks charges the whole sleep to each of them. One thread writes; any
// thread or process reads. The log may lie in memory that another process writes, with any values.
class WaitLog {
 public:
  // Ranks from here on are not logged.
  static constexpr int kRanks = 1024;

  void Add(const RankSet& ranks, absl::Duration time) {
    for (const int rank : ranks.ToVector()) {
      if (rank < 0 || rank >= kRanks) continue;
      nanoseconds_[rank].fetch_add(absl::ToInt64Nanoseconds(time), std::memory_order_relaxed);
    }
  }

  // Returns, among the ranks below `size`, the `most` with the longest waits, the longest first.
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
