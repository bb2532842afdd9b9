// The interface of the rendezvous benchmark to every system that it measures: Cohort and
// the peer systems.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_IMPLEMENTATION_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_IMPLEMENTATION_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cohort::benchmark {

enum class OperationKind {
  kBarrier,    // all members, from the first call issued to the last answer received
  kAllGather,  // the same, with an object from each to all
  kHandoff,    // from just before a send until a receiver that was already blocked has the object
  kPut,        // one small write, by `members` callers at once, each waiting for its answer
  kJoin,       // from nothing, connections included, until all members have the complete view
};

// How members share transport connections to the server.
enum class Connections { kPerMember, kShared };
inline constexpr int kSharedConnections = 8;

// One row of the benchmark, without the implementation.
struct Config {
  OperationKind kind = OperationKind::kBarrier;
  int members = 0;
  int64_t bytes = 0;
  Connections connections = Connections::kPerMember;
};

inline int ConnectionCount(const Config& config) {
  return config.connections == Connections::kPerMember
             ? config.members
             : std::min(config.members, kSharedConnections);
}

// The result of running a configuration's operation once.
struct Sample {
  std::vector<absl::Duration> latencies;
  double ops_per_s = 0;  // kPut only
};

using Operation = std::function<absl::StatusOr<Sample>()>;

class Implementation {
 public:
  virtual ~Implementation() = default;

  virtual std::string name() const = 0;
  // "memory" or "sqlite" for those that keep a journal, else empty.
  virtual std::string journal() const { return ""; }

  // Sets up servers, connections and members for the configuration, and returns the operation,
  // which keeps them alive. UNIMPLEMENTED: this implementation takes no part in such a
  // configuration.
  virtual absl::StatusOr<Operation> Prepare(const Config& config) = 0;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_IMPLEMENTATION_H_
