#include "client/collective/trace/merge_flight_records.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace cohort::client {
namespace {

// Which ranks need which in a call.
enum class Need {
  kAll,         // every rank needs every other
  kRoot,        // every rank needs the root
  kRootsOfAll,  // the root needs every other rank
};

Need NeedOf(Collective collective) {
  if (IsFromRoot(collective)) return Need::kRoot;
  return IsToRoot(collective) ? Need::kRootsOfAll : Need::kAll;
}

// Collectives in which no rank's part may be empty, so that the needs of `Need` are real.
bool BoundsClocks(Collective collective) {
  return (MovesTensors(collective) && !IsRagged(collective)) ||
         collective == Collective::kExchangeSizes || collective == Collective::kBarrier;
}

using Key = std::pair<int64_t, int64_t>;  // generation and number

class Builder {
 public:
  explicit Builder(std::vector<FlightRecord> records) {
    Choose(std::move(records));
    FindClocks();
    FindCalls();
  }

  GroupTrace Build(bool align) {
    if (trace_.clocks.size() > 1) {
      if (align) {
        Align();
      } else {
        Believe();
      }
    }
    for (TraceCall& call : trace_.calls) Judge(call);
    return std::move(trace_);
  }

 private:
  TraceRank& RankAt(int index) { return trace_.ranks[static_cast<size_t>(index)]; }
  const FlightCall& CallOf(const TracePart& part) {
    return RankAt(part.rank).record.calls[part.call];
  }

  void Choose(std::vector<FlightRecord> records) {
    std::map<int, FlightRecord> chosen;
    for (FlightRecord& record : records) {
      const auto [kept, is_new] = chosen.emplace(record.rank, record);
      if (is_new) continue;
      const bool later = std::make_pair(record.generation, record.taken) >
                         std::make_pair(kept->second.generation, kept->second.taken);
      if (later) kept->second = std::move(record);
    }
    for (auto& [rank, record] : chosen) {
      trace_.ranks.emplace_back();
      trace_.ranks.back().record = std::move(record);
    }
  }

  // All ranks of one clock are timed by it, whatever calendar time their processes read.
  void FindClocks() {
    std::map<std::string, std::pair<int, absl::Duration>> known;
    for (TraceRank& rank : trace_.ranks) {
      FlightRecord& record = rank.record;
      rank.clock = static_cast<int>(trace_.clocks.size());
      if (!record.clock.empty()) {
        const auto [clock, is_new] =
            known.emplace(record.clock, std::make_pair(rank.clock, record.calendar));
        rank.clock = clock->second.first;
        Shift(record, clock->second.second - record.calendar);
        record.calendar = clock->second.second;
      }
      if (rank.clock == static_cast<int>(trace_.clocks.size())) {
        trace_.clocks.push_back({record.host, {}});
      }
    }
  }

  static void Shift(FlightRecord& record, absl::Duration by) {
    Move(record, [by](absl::Time time) { return time + by; });
  }

  template <typename To>
  static void Move(FlightRecord& record, const To& to) {
    const auto move = [&to](std::optional<absl::Time>& time) {
      if (time.has_value()) time = to(*time);
    };
    record.taken = to(record.taken);
    for (FlightCall& call : record.calls) {
      call.started = to(call.started);
      move(call.finished);
      move(call.device_started);
      move(call.device_finished);
    }
  }

  void FindCalls() {
    std::map<Key, TraceCall> calls;
    newest_.resize(trace_.ranks.size());
    for (size_t rank = 0; rank < trace_.ranks.size(); ++rank) {
      const FlightRecord& record = trace_.ranks[rank].record;
      for (size_t i = 0; i < record.calls.size(); ++i) {
        const FlightCall& call = record.calls[i];
        if (call.number <= 0) continue;
        if (call.generation == record.generation) {
          newest_[rank] = std::max(newest_[rank], call.number);
        }
        TraceCall& of_all = calls[{call.generation, call.number}];
        of_all.generation = call.generation;
        of_all.number = call.number;
        of_all.parts.push_back({static_cast<int>(rank), i, absl::ZeroDuration()});
      }
    }
    trace_.calls.reserve(calls.size());
    for (auto& [key, call] : calls) {
      call.differs = Differs(call);
      trace_.calls.push_back(std::move(call));
    }
  }

  bool Differs(const TraceCall& call) {
    const FlightCall& first = CallOf(call.parts.front());
    return std::any_of(call.parts.begin(), call.parts.end(), [&](const TracePart& part) {
      const FlightCall& other = CallOf(part);
      return other.collective != first.collective || other.root != first.root;
    });
  }

  // The part of the call's root. Null: the record of the root is missing, or its rank is unknown,
  // since ranks of an earlier generation may have had other numbers.
  const TracePart* RootOf(const TraceCall& call) {
    const int root = CallOf(call.parts.front()).root;
    for (const TracePart& part : call.parts) {
      const FlightRecord& record = RankAt(part.rank).record;
      if (record.rank == root && record.generation == call.generation) return &part;
    }
    return nullptr;
  }

  Moment MomentOf(const TracePart& part, absl::Time time) {
    return {RankAt(part.rank).clock, absl::ToUnixNanos(time)};
  }

  // The bounds that the call gives for clocks. Begins are the times at which ranks called: their
  // work on a device began later.
  std::optional<SyncPoint> SyncPointOf(const TraceCall& call) {
    const FlightCall& first = CallOf(call.parts.front());
    if (call.differs || first.bytes <= 0 || !BoundsClocks(first.collective)) return std::nullopt;
    const Need need = NeedOf(first.collective);
    const TracePart* const root = need == Need::kAll ? nullptr : RootOf(call);
    if (need != Need::kAll && root == nullptr) return std::nullopt;
    SyncPoint sync_point;
    for (const TracePart& part : call.parts) {
      const FlightCall& own = CallOf(part);
      if (need != Need::kRoot || &part == root) {
        sync_point.begins.push_back(MomentOf(part, own.started));
      }
      const std::optional<absl::Time> end = own.state == "OK" ? EndOf(own) : std::nullopt;
      const bool needs = need == Need::kAll || (&part == root) == (need == Need::kRootsOfAll);
      if (needs && end.has_value()) sync_point.ends.push_back(MomentOf(part, *end));
    }
    return sync_point;
  }

  // Takes the calendars' times. Their errors are unknown.
  void Believe() {
    constexpr double kAnything = std::numeric_limits<double>::infinity();
    for (size_t i = 1; i < trace_.clocks.size(); ++i) {
      trace_.clocks[i].estimate.least = -kAnything;
      trace_.clocks[i].estimate.most = kAnything;
    }
  }

  void Align() {
    std::vector<SyncPoint> sync_points;
    for (const TraceCall& call : trace_.calls) {
      if (std::optional<SyncPoint> sync_point = SyncPointOf(call))
        sync_points.push_back(*std::move(sync_point));
    }
    const ClockAlignment found = AlignClocks(static_cast<int>(trace_.clocks.size()), sync_points);
    trace_.contradiction = found.contradiction;
    for (size_t i = 0; i < trace_.clocks.size(); ++i) trace_.clocks[i].estimate = found.clocks[i];
    for (TraceRank& rank : trace_.ranks) {
      if (rank.clock == 0) continue;
      Move(rank.record, [&](absl::Time time) {
        return absl::FromUnixNanos(found.OnFirst({rank.clock, absl::ToUnixNanos(time)}));
      });
    }
  }

  // The begin on the device, if all ranks know it: a rank may enqueue its call any time before.
  absl::Time BeginOf(const FlightCall& call, bool on_device) {
    return on_device ? *call.device_started : call.started;
  }

  void Judge(TraceCall& call) {
    const bool on_device =
        std::all_of(call.parts.begin(), call.parts.end(),
                    [&](const TracePart& part) { return CallOf(part).device_started.has_value(); });
    const auto begin = [&](const TracePart& part) { return BeginOf(CallOf(part), on_device); };
    std::stable_sort(call.parts.begin(), call.parts.end(),
                     [&](const TracePart& a, const TracePart& b) { return begin(a) < begin(b); });
    bool failed = false;
    for (const TracePart& part : call.parts) {
      call.open |= !IsOver(CallOf(part));
      failed |= CallOf(part).state != "OK";
    }
    if (failed) FindAbsent(call, begin(call.parts.front()));
    if (call.parts.size() < 2 || call.differs || !call.absent.empty()) return;
    const Need need = NeedOf(CallOf(call.parts.front()).collective);
    const TracePart* const root = need == Need::kAll ? nullptr : RootOf(call);
    if (need != Need::kAll && root == nullptr) return;
    const TracePart& last = need == Need::kRoot ? *root : call.parts.back();
    for (TracePart& part : call.parts) {
      if (need == Need::kRootsOfAll && &part != root) continue;
      part.waited = std::max(absl::ZeroDuration(), begin(last) - begin(part));
      call.longest_wait = std::max(call.longest_wait, part.waited);
    }
    if (call.longest_wait == absl::ZeroDuration()) return;
    call.last = last.rank;
    TraceRank& awaited = RankAt(last.rank);
    ++awaited.last_in;
    awaited.waited_for += call.longest_wait;
    call.certain = IsCertain(call, last, begin(last), on_device);
  }

  // Whether no other rank may have begun later, within the doubt of the clocks. If the others wait
  // for a root, only the rank that waited longest counts.
  bool IsCertain(const TraceCall& call, const TracePart& last, absl::Time began, bool on_device) {
    const int clock = RankAt(last.rank).clock;
    return std::all_of(call.parts.begin(), call.parts.end(), [&](const TracePart& part) {
      const int other = RankAt(part.rank).clock;
      const bool may_be_later =
          NeedOf(CallOf(part).collective) == Need::kRoot && part.waited != call.longest_wait;
      if (other == clock || may_be_later) return true;
      const double doubt = DoubtOf(clock) + DoubtOf(other);
      return absl::ToDoubleNanoseconds(began - BeginOf(CallOf(part), on_device)) > doubt;
    });
  }

  double DoubtOf(int clock) {
    const ClockEstimate& estimate = trace_.clocks[static_cast<size_t>(clock)].estimate;
    return (estimate.most - estimate.least) / 2;
  }

  // Finds the ranks that had not begun the call when their records were read, although others had.
  void FindAbsent(TraceCall& call, absl::Time first) {
    for (size_t i = 0; i < trace_.ranks.size(); ++i) {
      const FlightRecord& record = trace_.ranks[i].record;
      if (record.generation != call.generation || newest_[i] >= call.number) continue;
      if (record.taken >= first) call.absent.push_back(static_cast<int>(i));
    }
  }

  std::vector<int64_t> newest_;  // by rank: its last common call in its generation
  GroupTrace trace_;
};

}  // namespace

bool IsOver(const FlightCall& call) {
  return call.state != "running" && call.state != "enqueued" &&
         call.state != "running on the device";
}

std::optional<absl::Time> EndOf(const FlightCall& call) {
  if (!IsOver(call)) return std::nullopt;
  if (call.device_started.has_value()) return call.device_finished;
  // The end of enqueued work is unknown without a device's times, for example for recorded calls.
  if (call.on_stream) return std::nullopt;
  return call.finished;
}

GroupTrace PutTogether(std::vector<FlightRecord> records, bool align) {
  return Builder(std::move(records)).Build(align);
}

}  // namespace cohort::client
