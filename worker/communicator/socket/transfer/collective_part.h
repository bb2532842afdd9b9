// The meaning of the collectives: which part of which rank's input each rank needs, and where the
// part belongs.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_COLLECTIVE_PART_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_COLLECTIVE_PART_H_

#include <cstdint>

#include "base/collective/collective.h"

namespace cohort::worker {

// One rank's call of a collective.
struct Call {
  FlatCall flat;
  const char* input = nullptr;
  char* output = nullptr;
  int rank = 0;
  int size = 0;
  int64_t bytes = 0;  // of `count` elements
};

// Whether rank `to` needs `count` elements of rank `from`; the two may be the same.
bool Needs(const FlatCall& flat, int to, int from);

// The part of this rank's input that `to` needs.
const char* PartFor(const Call& call, int to);

// Where this rank puts the part that it needs of `from`, in collectives that do not reduce.
char* OutputFor(const Call& call, int from);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_TRANSFER_COLLECTIVE_PART_H_
