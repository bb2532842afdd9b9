#include "worker/communicator/host/store_choice.h"

#include "worker/communicator/host/host_space.h"

namespace cohort::worker {
namespace {

// Between what is shared, read from memory at worst (8 ns, and 15 where four ranks do so at once),
// and what is not.
constexpr absl::Duration kSlowLine = absl::Nanoseconds(20);
// One may have been interrupted, or have been the first to touch its memory.
constexpr int kSlowInTurn = 3;
constexpr int kTimedEach = 4;
// Past the caches. Seldom enough that those in between, which are slow, do not count.
constexpr int kTriedEach = 128;

}  // namespace

StoreChoice::Step StoreChoice::Next() {
  const bool timed = ++steps_ >= (past_caches_ ? kTriedEach : slow_ > 0 ? 1 : kTimedEach);
  if (timed) steps_ = 0;
  return {past_caches_ && !timed ? Stores::kStreaming : Stores::kCached, timed};
}

void StoreChoice::Took(int64_t bytes, absl::Duration took) {
  const bool slow = took > kSlowLine * (bytes / static_cast<int64_t>(kCacheLine));
  slow_ = slow ? slow_ + 1 : 0;
  if (!slow) past_caches_ = false;
  if (slow_ >= kSlowInTurn) past_caches_ = true;
}

}  // namespace cohort::worker
