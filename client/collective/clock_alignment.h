// How far the clocks of several machines are apart, as far as what they timed tells.
//
// Of a call in which every rank needs something of every other, no rank comes to the end before the
// last has begun it. So each such call, timed by the ranks' own clocks, bounds how much one clock
// may be ahead of another: a rank that ended at 5 by its clock, while another began at 7 by its
// own, is at least 2 behind. What only some wait for bounds as well: nobody has a broadcast before
// its root began. The smallest of all bounds count, also those by way of third clocks: that is the
// shortest way from clock to clock, and the truth lies between the two directions. The middle is
// the guess; where the calls take little longer than the slowest message, it is good to about that.
//
// Crystals differ by some millionths, which is more than a call takes after a second already. So
// each clock may also go faster or slower by a constant share: the one that leaves the bounds most
// apart, and none where none does about as well.
#ifndef COHORT_CLIENT_COLLECTIVE_CLOCK_ALIGNMENT_H_
#define COHORT_CLIENT_COLLECTIVE_CLOCK_ALIGNMENT_H_

#include <cstdint>
#include <vector>

namespace cohort::client {

// What a clock showed, in nanoseconds.
struct Moment {
  int clock = 0;
  int64_t at = 0;
};

// Each end is after all begins.
struct Meeting {
  std::vector<Moment> begins;
  std::vector<Moment> ends;
};

// How much a clock is ahead of the first one, in nanoseconds of about the middle of all meetings.
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

  // What the first clock showed when `moment.clock` showed that.
  int64_t OnFirst(Moment moment) const;
};

// `clocks`: how many there are, at least 1.
ClockAlignment AlignClocks(int clocks, const std::vector<Meeting>& meetings);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_CLOCK_ALIGNMENT_H_
