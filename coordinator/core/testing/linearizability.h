// Decides whether the operations on one key, as clients saw them, are linearizable.
#ifndef COHORT_COORDINATOR_CORE_TESTING_LINEARIZABILITY_H_
#define COHORT_COORDINATOR_CORE_TESTING_LINEARIZABILITY_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::coordinator {

// One finished operation on the key: its request, its answer, and their instants. Instants are any
// growing numbers.
struct KeyOperation {
  enum class Kind { kPut, kCompareAndPut, kGet, kAdd, kDelete };
  Kind kind = Kind::kGet;
  int64_t invoked = 0;
  int64_t responded = 0;

  int64_t expected_revision = 0;  // compare and put; 0: absent
  int64_t delta = 0;              // add

  // Compare and put: whether it wrote. Get and delete: whether the key existed.
  bool done = false;
  // The key's value after a put or an add, or the value that a get read.
  std::string value;
  // The key's revision after a put or an add; the one a get saw.
  int64_t revision = 0;

  std::string ToString() const;
};

// The search of Wing and Gong ("Testing and verifying concurrent objects", 1993): an operation may
// be the next one if none of the others ended before it began. States that were reached by the same
// set of operations before are not tried again (Lowe). The key is absent at first.
bool IsLinearizable(const std::vector<KeyOperation>& history);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_LINEARIZABILITY_H_
