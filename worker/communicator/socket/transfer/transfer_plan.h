// How the large data of a collective travels, once all ranks have agreed on the call. All ranks
// make the same plan, so each knows which bytes to expect in each stream.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_TRANSFER_PLAN_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_TRANSFER_PLAN_H_

#include <cstdint>
#include <vector>

#include "worker/communicator/socket/transfer/collective_part.h"
#include "worker/communicator/socket/transfer/traffic.h"

namespace cohort::worker {

// Gives `traffic` this rank's part of the collective. `scratch` grows to the size that reductions
// need, at most kScratchBytes or 4 KiB for each rank. It is in use until the traffic is done.
//
// Ranks exchange their parts directly; each starts with the next rank. A reduction cuts the
// elements into a slice for each rank. The rank gets its slice of all inputs, reduces them in the
// order of ranks, and sends the result to the ranks that need it. A broadcast is cut into a slice
// for each rank but the root; the rank passes its slice on to the others.
void Plan(const Call& call, std::vector<char>* scratch, Traffic* traffic);

// Plans a message between two ranks. `waiting` is raised by the number of its flows; each flow
// lowers it by one when it is done.
void PlanMessage(int peer, bool sends, char* data, int64_t bytes, int* waiting, Traffic* traffic);

inline constexpr int64_t kScratchBytes = int64_t{1} << 20;

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_TRANSFER_PLAN_H_
