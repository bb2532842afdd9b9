// The one source of chance of a simulated run: the same seed gives the same run, on every machine.
#ifndef COHORT_COORDINATOR_CORE_TESTING_SIMULATION_RANDOM_H_
#define COHORT_COORDINATOR_CORE_TESTING_SIMULATION_RANDOM_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/id128.h"

namespace cohort::coordinator {

// A function of its arguments alone, with which all members of a group get the same number.
inline uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class SimulationRandom {
 public:
  explicit SimulationRandom(uint64_t seed) : state_(Mix(seed)) {}

  uint64_t Next() { return Mix(state_ += 0x9e3779b97f4a7c15u); }
  // 0 .. n-1.
  int Below(int n) { return static_cast<int>(Next() % static_cast<uint64_t>(n)); }
  bool Chance(double probability) { return (Next() >> 11) * 0x1.0p-53 < probability; }
  absl::Duration Between(absl::Duration low, absl::Duration high) {
    const int64_t span = absl::ToInt64Microseconds(high - low);
    return low + absl::Microseconds(span <= 0 ? 0 : Next() % static_cast<uint64_t>(span));
  }
  Id128 Id() {
    const uint64_t high = Next();
    return Id128{high, Next() | 1};
  }
  template <typename T>
  void Shuffle(std::vector<T>& items) {
    for (size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[Next() % i]);
  }

 private:
  uint64_t state_;
};

}  // namespace cohort::coordinator

#endif  // COHORT_COORDINATOR_CORE_TESTING_SIMULATION_RANDOM_H_
