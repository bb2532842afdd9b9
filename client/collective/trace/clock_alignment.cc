#include "client/collective/trace/clock_alignment.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>

namespace cohort::client {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
// No working clock drifts more, not even while it is slewed.
constexpr double kMostDrift = 1e-3;
// Each search step leaves two thirds: in the end less than a nanosecond in a day.
constexpr int kSearches = 80;
// The first guess of a contradiction, in nanoseconds; each further guess doubles it.
constexpr double kFirstSlack = 100;

// A sync point with one moment for each clock, the latest begin or the earliest end, by clock.
struct Bounds {
  std::vector<Moment> begins;
  std::vector<Moment> ends;
};

Bounds Reduce(const SyncPoint& sync_point) {
  std::map<int, int64_t> begins;
  std::map<int, int64_t> ends;
  for (const Moment& moment : sync_point.begins) {
    const auto [at, is_new] = begins.emplace(moment.clock, moment.at);
    if (!is_new) at->second = std::max(at->second, moment.at);
  }
  for (const Moment& moment : sync_point.ends) {
    const auto [at, is_new] = ends.emplace(moment.clock, moment.at);
    if (!is_new) at->second = std::min(at->second, moment.at);
  }
  Bounds bounds;
  for (const auto& [clock, at] : begins) bounds.begins.push_back({clock, at});
  for (const auto& [clock, at] : ends) bounds.ends.push_back({clock, at});
  return bounds;
}

// `moments` are by clock.
std::optional<int64_t> Of(const std::vector<Moment>& moments, int clock) {
  const auto found =
      std::lower_bound(moments.begin(), moments.end(), clock,
                       [](const Moment& moment, int than) { return moment.clock < than; });
  if (found == moments.end() || found->clock != clock) return std::nullopt;
  return found->at;
}

// Bounds of one clock against the first, at `when` since the middle.
struct Bound {
  double when = 0;
  double ahead = 0;
};

// Apart: how far the least of `most` is above the greatest of `least`, if the clock drifts so.
double Margin(const std::vector<Bound>& least, const std::vector<Bound>& most, double drift) {
  double above = kNever;
  double below = -kNever;
  for (const Bound& bound : most) above = std::min(above, bound.ahead - drift * bound.when);
  for (const Bound& bound : least) below = std::max(below, bound.ahead - drift * bound.when);
  return above - below;
}

// The drift that leaves the most room, or 0 if that leaves half as much. The room is a concave
// function of the drift, so a search by thirds finds its top.
double DriftOf(int clock, const std::vector<Bounds>& all, int64_t middle) {
  std::vector<Bound> least;
  std::vector<Bound> most;
  for (const Bounds& bounds : all) {
    const auto first_begin = Of(bounds.begins, 0);
    const auto first_end = Of(bounds.ends, 0);
    const auto begin = Of(bounds.begins, clock);
    const auto end = Of(bounds.ends, clock);
    if (first_begin.has_value() && end.has_value()) {
      most.push_back(
          {static_cast<double>(*first_begin - middle), static_cast<double>(*end - *first_begin)});
    }
    if (first_end.has_value() && begin.has_value()) {
      least.push_back(
          {static_cast<double>(*first_end - middle), static_cast<double>(*begin - *first_end)});
    }
  }
  if (least.empty() || most.empty()) return 0;
  double low = -kMostDrift;
  double high = kMostDrift;
  for (int i = 0; i < kSearches; ++i) {
    const double third = (high - low) / 3;
    if (Margin(least, most, low + third) < Margin(least, most, high - third)) {
      low += third;
    } else {
      high -= third;
    }
  }
  const double drift = (low + high) / 2;
  const double without = Margin(least, most, 0);
  return without >= 0 && without >= Margin(least, most, drift) / 2 ? 0 : drift;
}

// Bounds clocks by their moments, without drift and counted from the middle.
class Solver {
 public:
  Solver(const std::vector<Bounds>& all, const std::vector<ClockEstimate>& clocks, int64_t middle)
      : all_(all), clocks_(clocks), middle_(middle) {}

  // The bounds of each clock, if all ends were `slack` later. False: they contradict each other.
  bool Solve(double slack, std::vector<double>* least, std::vector<double>* most) const {
    least->assign(clocks_.size(), -kNever);
    most->assign(clocks_.size(), kNever);
    least->front() = 0;
    most->front() = 0;
    // Each round finds the paths through one more clock. A circle of negative length would shrink
    // for ever.
    for (size_t round = 0; round <= clocks_.size(); ++round) {
      bool moved = false;
      for (const Bounds& bounds : all_) moved |= Tighten(bounds, slack, least, most);
      if (least->front() > kRounding || most->front() < -kRounding) return false;
      if (!moved) return true;
    }
    return false;
  }

 private:
  // The rounding error of sums of such numbers.
  static constexpr double kRounding = 1e-3;

  double At(const Moment& moment) const {
    const double since = static_cast<double>(moment.at - middle_);
    return since - clocks_[static_cast<size_t>(moment.clock)].drift * since;
  }

  // ahead(a) - ahead(b) <= end(a) - begin(b), for all a that end and all b that begin: so the part
  // of b is the same for all a.
  bool Tighten(const Bounds& bounds, double slack, std::vector<double>* least,
               std::vector<double>* most) const {
    double nearest = kNever;
    for (const Moment& begin : bounds.begins) {
      nearest = std::min(nearest, (*most)[static_cast<size_t>(begin.clock)] - At(begin));
    }
    double furthest = -kNever;
    for (const Moment& end : bounds.ends) {
      furthest = std::max(furthest, (*least)[static_cast<size_t>(end.clock)] - At(end) - slack);
    }
    bool moved = false;
    for (const Moment& end : bounds.ends) {
      double& bound = (*most)[static_cast<size_t>(end.clock)];
      const double found = At(end) + slack + nearest;
      if (found >= bound - kRounding) continue;
      bound = found;
      moved = true;
    }
    for (const Moment& begin : bounds.begins) {
      double& bound = (*least)[static_cast<size_t>(begin.clock)];
      const double found = At(begin) + furthest;
      if (found <= bound + kRounding) continue;
      bound = found;
      moved = true;
    }
    return moved;
  }

  const std::vector<Bounds>& all_;
  const std::vector<ClockEstimate>& clocks_;
  const int64_t middle_;
};

double Guess(double least, double most) {
  if (least > -kNever && most < kNever) return (least + most) / 2;
  // With one bound, the calendars' difference of 0 counts if it is within the bound.
  return std::min(std::max(0.0, least), most);
}

int64_t MiddleOf(const std::vector<Bounds>& all) {
  int64_t first = std::numeric_limits<int64_t>::max();
  int64_t last = std::numeric_limits<int64_t>::min();
  for (const Bounds& bounds : all) {
    for (const std::vector<Moment>* moments : {&bounds.begins, &bounds.ends}) {
      for (const Moment& moment : *moments) {
        first = std::min(first, moment.at);
        last = std::max(last, moment.at);
      }
    }
  }
  return first > last ? 0 : first + (last - first) / 2;
}

}  // namespace

int64_t ClockAlignment::OnFirst(Moment moment) const {
  const ClockEstimate& clock = clocks[static_cast<size_t>(moment.clock)];
  const double since = static_cast<double>(moment.at - middle);
  return moment.at - std::llround(clock.ahead + clock.drift * since);
}

ClockAlignment AlignClocks(int clocks, const std::vector<SyncPoint>& sync_points) {
  ClockAlignment result;
  result.clocks.resize(static_cast<size_t>(clocks));
  std::vector<Bounds> all;
  all.reserve(sync_points.size());
  for (const SyncPoint& sync_point : sync_points) all.push_back(Reduce(sync_point));
  result.middle = MiddleOf(all);
  for (int clock = 1; clock < clocks; ++clock) {
    result.clocks[static_cast<size_t>(clock)].drift = DriftOf(clock, all, result.middle);
  }
  const Solver solver(all, result.clocks, result.middle);
  std::vector<double> least;
  std::vector<double> most;
  while (!solver.Solve(result.contradiction, &least, &most)) {
    result.contradiction = std::max(kFirstSlack, 2 * result.contradiction);
  }
  for (size_t i = 0; i < result.clocks.size(); ++i) {
    ClockEstimate& clock = result.clocks[i];
    clock.least = least[i];
    clock.most = most[i];
    clock.ahead = Guess(least[i], most[i]);
  }
  return result;
}

}  // namespace cohort::client
