// Redis as an implementation of the benchmark: hand-off through a blocked pop, and small writes.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_REDIS_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_REDIS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

// Starts `server` (the path of redis-server) on a free port, without persistence, as a user would
// by hand:
//   redis-server --bind 127.0.0.1 --port 6390 --save '' --appendonly no
absl::StatusOr<std::unique_ptr<Implementation>> StartRedis(const std::string& server,
                                                           const std::string& scratch);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_REDIS_H_
