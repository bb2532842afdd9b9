// The last calls of ranks as chrome://tracing and Perfetto show them.
#ifndef COHORT_CLIENT_COLLECTIVE_CHROME_TRACE_H_
#define COHORT_CLIENT_COLLECTIVE_CHROME_TRACE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/collective/flight_record.h"
#include "client/collective/group_trace.h"

namespace cohort::client {

// Of any groups: a process for each group, a thread for each rank and one for its device, if it has
// any, and a slice for each call; one that runs still is as long as until `now`, and says so.
std::string ChromeTrace(const std::vector<FlightRecord>& records, absl::Time now);

// Of one group: a process for each rank, with a track of its calls and one of its device. Arrows
// lead through the same call on all ranks, in the order in which they began it; arguments say whom
// a rank waited for, and how long. Time begins with the first call; `otherData` says when that was.
// A call that runs still is as long as until its rank's record was read.
std::string ChromeTrace(const GroupTrace& trace);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_CHROME_TRACE_H_
