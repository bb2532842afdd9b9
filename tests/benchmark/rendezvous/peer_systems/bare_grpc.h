// Bare gRPC as an implementation of the benchmark: the least cost of any service over gRPC.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_BARE_GRPC_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_BARE_GRPC_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

// Starts `server` (the path of bare_grpc_server) with its files in `scratch`.
absl::StatusOr<std::unique_ptr<Implementation>> StartBareGrpc(const std::string& server,
                                                              const std::string& scratch);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_BARE_GRPC_H_
