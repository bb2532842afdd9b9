// Seeded runs of the whole state machine in a world that loses, doubles and delays messages, and
// kills processes.
//
// A failure names its seed; COHORT_SIMULATION_SEED=<seed> runs that one alone,
// COHORT_SIMULATION_SEEDS=<n> runs the first n of them,
// COHORT_SIMULATION_STEPS=<n> makes them longer.
#include "coordinator/core/testing/simulation.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"

namespace cohort::coordinator {
namespace {

int64_t FromEnvironment(const char* name, int64_t otherwise) {
  const char* text = std::getenv(name);
  int64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

// Runs it once more, with a trace, when it fails.
SimulationResult RunTraced(SimulationOptions options) {
  SimulationResult result = Simulate(options);
  if (result.failure.empty()) return result;
  options.trace = true;
  const SimulationResult again = Simulate(options);
  ADD_FAILURE() << result.failure << "\nThe last events:\n" << again.trace;
  EXPECT_EQ(again.failure, result.failure) << "the same seed must fail in the same way";
  return result;
}

TEST(Simulation, HoldsItsInvariantsUnderFaults) {
  const int64_t only = FromEnvironment("COHORT_SIMULATION_SEED", 0);
  const int64_t count = only != 0 ? 1 : FromEnvironment("COHORT_SIMULATION_SEEDS", 100);
  SimulationResult total;
  int failures = 0;
  for (int64_t i = 0; i < count && failures < 3; ++i) {
    SimulationOptions options;
    options.seed = static_cast<uint64_t>(only != 0 ? only : i + 1);
    options.steps = FromEnvironment("COHORT_SIMULATION_STEPS", 3000);
    const SimulationResult result = RunTraced(options);
    failures += result.failure.empty() ? 0 : 1;
    total.steps += result.steps;
    total.boots += result.boots;
    total.generations += result.generations;
    total.rounds_released += result.rounds_released;
    total.objects_received += result.objects_received;
    total.pops += result.pops;
  }
  std::cout << count << " seeds, " << total.steps << " steps, " << total.boots << " boots, "
            << total.generations << " generations, " << total.rounds_released << " rounds, "
            << total.objects_received << " objects, " << total.pops << " queue items\n";
  if (only != 0 || failures != 0) return;
  // A world in which little happens proves little.
  EXPECT_GT(total.generations, 5 * count);
  EXPECT_GT(total.rounds_released, 50 * count);
  EXPECT_GT(total.objects_received, 5 * count);
  EXPECT_GT(total.boots, count);
}

TEST(Simulation, HoldsItsInvariantsWithHundredsOfMembers) {
  SimulationOptions options;
  options.seed = 4711;
  options.members = 300;
  options.steps = 70000;
  const SimulationResult result = RunTraced(options);
  EXPECT_GT(result.rounds_released, 3);
  EXPECT_GT(result.objects_received, 300);
}

TEST(Simulation, RunsTheSameWayAgain) {
  SimulationOptions options;
  options.seed = 17;
  EXPECT_EQ(Simulate(options), Simulate(options));
}

}  // namespace
}  // namespace cohort::coordinator
