// Which part of whose input goes to whom, and where it belongs: what the verbs mean.
#ifndef COHORT_WORKER_COMMUNICATOR_SOCKET_PART_H_
#define COHORT_WORKER_COMMUNICATOR_SOCKET_PART_H_

#include <cstdint>

#include "base/collective.h"

namespace cohort::worker {

// A call of a verb by one rank.
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

// Of this rank's input, what `to` needs.
const char* PartFor(const Call& call, int to);

// Where this rank puts what it needs of `from`; of verbs that do not reduce.
char* PlaceOf(const Call& call, int from);

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_SOCKET_PART_H_
