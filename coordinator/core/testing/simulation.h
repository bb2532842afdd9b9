// One seeded run: groups of members use a coordinator over a bad network while processes die, stop
// and come back. Then all faults end: everything must work, and no state must be left behind.
#ifndef COHORT_COORDINATOR_CORE_TESTING_SIMULATION_H_
#define COHORT_COORDINATOR_CORE_TESTING_SIMULATION_H_

#include <cstdint>
#include <string>
#include <vector>

namespace cohort::coordinator {

struct SimulationOptions {
  uint64_t seed = 1;
  // Steps of the coordinator before everything is healed.
  int64_t steps = 3000;
  // Members of all groups together; 0: a few, by the seed.
  int members = 0;
  bool trace = false;
};

struct SimulationResult {
  std::string failure;  // empty: all held
  std::string trace;    // the last events, when asked for
  int64_t steps = 0;
  int64_t boots = 0;
  int64_t generations = 0;
  int64_t rounds_released = 0;
  int64_t objects_received = 0;
  int64_t pops = 0;

  friend bool operator==(const SimulationResult& a, const SimulationResult& b) {
    return a.failure == b.failure && a.steps == b.steps && a.boots == b.boots &&
           a.generations == b.generations && a.rounds_released == b.rounds_released &&
           a.objects_received == b.objects_received && a.pops == b.pops;
  }
};

SimulationResult Simulate(const SimulationOptions& options);

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_SIMULATION_H_
