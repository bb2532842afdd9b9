// The flight records of a group's ranks, merged by call: the rank that came last to each call, and
// how long the others waited for it.
#ifndef COHORT_CLIENT_COLLECTIVE_TRACE_MERGE_FLIGHT_RECORDS_H_
#define COHORT_CLIENT_COLLECTIVE_TRACE_MERGE_FLIGHT_RECORDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "client/collective/trace/clock_alignment.h"
#include "client/collective/trace/flight_record.h"

namespace cohort::client {

// One of the clocks by which ranks timed their calls.
struct TraceClock {
  std::string host;  // of the first of its ranks
  ClockEstimate estimate;
};

struct TraceRank {
  FlightRecord record;  // times are as all others', but for the calendar's error on the first clock
  int clock = 0;        // in GroupTrace::clocks
  int last_in = 0;      // how many calls waited for it
  absl::Duration waited_for;  // by the rank that waited longest in each call, as a sum
};

// A rank's part in a call of all ranks.
struct TracePart {
  int rank = 0;           // in GroupTrace::ranks, as `last` of TraceCall
  size_t call = 0;        // in its record
  absl::Duration waited;  // until the last rank that it needs had begun; zero: no wait
};

struct TraceCall {
  int64_t generation = 0;
  int64_t number = 0;
  std::vector<TracePart> parts;  // in the order in which they began
  // The rank for which the others waited. Absent: no rank waited, or it is unknown: there are parts
  // of fewer than two ranks, or a rank had not come.
  std::optional<int> last;
  absl::Duration longest_wait;
  // Whether the clocks are known well enough for `last`.
  bool certain = true;
  bool differs = false;  // ranks called different collectives
  bool open = false;     // a rank is still in it
  // If `open`, or if the call failed: ranks that had not begun it when their records were read.
  std::vector<int> absent;
};

struct GroupTrace {
  // By rank. If a rank has several records: the one of the latest generation, read last.
  std::vector<TraceRank> ranks;
  // The first is the one of the first rank. If they were not aligned, nothing bounds the others.
  std::vector<TraceClock> clocks;
  double contradiction = 0;  // see ClockAlignment
  // The calls of all ranks, oldest first.
  std::vector<TraceCall> calls;
};

// When a rank ended a call; for work on a device, when the device ended it. Absent: not yet, or
// unknown.
std::optional<absl::Time> EndOf(const FlightCall& call);
// Whether the rank has ended the call, with any result.
bool IsOver(const FlightCall& call);

// `align`: corrects the clocks by AlignClocks; else the trace takes the times of their calendars.
GroupTrace PutTogether(std::vector<FlightRecord> records, bool align);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_TRACE_MERGE_FLIGHT_RECORDS_H_
