// vLLM's stateless group over PyTorch's TCPStore as an implementation of the benchmark.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_TCPSTORE_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_TCPSTORE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

// Runs `script` (tcpstore_stateless.py, which says how it measures) with `python`, which must
// have torch. Up to 256 members; the time of a barrier grows with their square.
absl::StatusOr<std::unique_ptr<Implementation>> StartTcpStore(const std::string& python,
                                                              const std::string& script,
                                                              const std::string& scratch);

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_TCPSTORE_H_
