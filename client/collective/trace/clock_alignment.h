// Estimates how far the clocks of several machines are apart, from the times of their calls.
//
// If every rank of a call needs something of every other, no rank can end the call before the last
// rank has begun it. So each such call, timed by the ranks' own clocks, bounds how much one clock
// is ahead of another. If a rank ended at 5 by its clock, and another began at 7 by its own, the
// first clock is at least 2 behind. Calls in which only some ranks wait give bounds, too: no rank
// has the tensor of a broadcast before its root began. The smallest bounds count, also those
// through third clocks: they are the shortest paths from clock to clock. The truth lies between the
// bounds of the two directions, and the estimate is their middle. If the calls take little longer
// than the slowest message, the estimate is about as good as that.
//
// Crystals differ by some millionths, which after a second is already more than a call takes. So
// each clock may also drift by a constant share: the one that leaves the bounds the most room, or 0
// if no drift does about as well.
#ifndef COHORT_CLIENT_COLLECTIVE_TRACE_CLOCK_ALIGNMENT_H_
#define COHORT_CLIENT_COLLECTIVE_TRACE_CLOCK_ALIGNMENT_H_

#include <cstdint>
#include <vector>

namespace cohort::client {

// The reading of a clock, in nanoseconds.
struct Moment {
  int clock = 0;
  int64_t at = 0;
};

// Each end is after all begins.
struct SyncPoint {
  std::vector<Moment> begins;
  std::vector<Moment> ends;
};

// How much a clock is ahead of the first one, in nanoseconds of about the middle of all sync
// points.
struct ClockEstimate {
  double ahead = 0;
  // The truth is no less and no more; infinite where nothing says so. If both are, `ahead` is 0.
  double least = 0;
  double most = 0;
  double drift = 0;  // how much more it is ahead with each nanosecond
};

struct ClockAlignment {
  std::vector<ClockEstimate> clocks;
  int64_t middle = 0;
  // By how much times must be wrong, in nanoseconds, since they contradict each other: bounds are
  // as if they were. 0: they do not.
  double contradiction = 0;

  // The reading of the first clock when `moment.clock` showed this moment.
  int64_t OnFirst(Moment moment) const;
};

// `clocks`: how many there are, at least 1.
ClockAlignment AlignClocks(int clocks, const std::vector<SyncPoint>& sync_points);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_TRACE_CLOCK_ALIGNMENT_H_
