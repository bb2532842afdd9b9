// A flight record as it leaves the process.
#ifndef COHORT_WORKER_GROUP_FLIGHT_EXPORT_H_
#define COHORT_WORKER_GROUP_FLIGHT_EXPORT_H_

#include <vector>

#include "client/collective/flight_record.h"
#include "worker/group/flight_recorder.h"

namespace cohort::worker {

// Calls of this machine, and the clock that they were timed by. Whose they are is left to the
// caller.
client::FlightRecord ExportFlightRecord(const std::vector<FlightEntry>& entries);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_FLIGHT_EXPORT_H_
