// The last calls of ranks as chrome://tracing and Perfetto show them.
#ifndef COHORT_CLIENT_COLLECTIVE_TRACE_CHROME_TRACE_H_
#define COHORT_CLIENT_COLLECTIVE_TRACE_CHROME_TRACE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "client/collective/trace/flight_record.h"
#include "client/collective/trace/merge_flight_records.h"

namespace cohort::client {

// A trace of any groups. It has a process for each group, a thread for each rank and one for its
// device, if any, and a slice for each call. A call that still runs lasts until `now` and is
// marked.
std::string ChromeTrace(const std::vector<FlightRecord>& records, absl::Time now);

// A trace of one group. It has a process for each rank, with a track of its calls and one of its
// device. Arrows lead through the same call on all ranks, in the order in which they began it;
// arguments tell for which rank a rank waited, and how long. Time begins with the first call;
// `otherData` has that moment. A call that still runs lasts until its rank's record was read.
std::string ChromeTrace(const GroupTrace& trace);

}  // namespace cohort::client

#endif  // COHORT_CLIENT_COLLECTIVE_TRACE_CHROME_TRACE_H_
