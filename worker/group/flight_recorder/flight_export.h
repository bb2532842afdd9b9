// A flight record in the form in which it leaves the process.
#ifndef COHORT_WORKER_GROUP_FLIGHT_RECORDER_FLIGHT_EXPORT_H_
#define COHORT_WORKER_GROUP_FLIGHT_RECORDER_FLIGHT_EXPORT_H_

#include <vector>

#include "client/collective/trace/flight_record.h"
#include "worker/group/flight_recorder/flight_recorder.h"

namespace cohort::worker {

// Returns the calls with this machine's name and its clock. The caller sets the group and rank.
client::FlightRecord ExportFlightRecord(const std::vector<FlightEntry>& entries);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_FLIGHT_RECORDER_FLIGHT_EXPORT_H_
