// How the large data of a collective travels, once all ranks have agreed on it. All ranks plan the
// same, so that what one sends through a stream is what the other expects there.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_PLAN_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_PLAN_H_

#include <cstdint>
#include <vector>

#include "worker/communicator/socket/part.h"
#include "worker/communicator/socket/traffic.h"

namespace cohort::worker {

// Gives `traffic` what this rank has to do. `scratch` grows to what reductions need, at most
// kScratchBytes or 4 KiB for each rank, and is in use until the traffic is done.
//
// Ranks exchange directly; each starts with the rank behind it. What is reduced is cut into a slice
// for each rank, which gets that slice of all inputs, reduces it in the order of ranks, and sends
// the result to those who need it. A broadcast is cut into a slice for each rank but the root,
// which hands it on to the others.
void Plan(const Call& call, std::vector<char>* scratch, Traffic* traffic);

// A message between two ranks: `waiting` is raised by the number of flows that it is, each of which
// lowers it by one when it is done.
void PlanMessage(int peer, bool sends, char* data, int64_t bytes, int* waiting, Traffic* traffic);

inline constexpr int64_t kScratchBytes = int64_t{1} << 20;

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_PLAN_H_
