// The client of bare gRPC: the same calls, connections and bytes as Cohort's, and nothing
// else.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_BARE_GRPC_CLIENT_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_BARE_GRPC_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "tests/benchmark/rendezvous/peer_systems/echo.grpc.pb.h"

namespace cohort::benchmark {

// Thread-safe.
class BareGrpcClient {
 public:
  // Each of the `connections` is a TCP connection of its own.
  BareGrpcClient(const std::string& address, int connections);

  // Member i calls over connection i % connections. `done` runs on a thread of gRPC.
  void ParkAsync(int member, uint64_t round, int expected, int64_t request_bytes,
                 int64_t reply_bytes, std::function<void(const absl::Status&)> done);
  absl::Status Park(int member, uint64_t round, int expected, int64_t request_bytes,
                    int64_t reply_bytes);
  absl::Status EchoOnce(int caller, int64_t request_bytes, int64_t reply_bytes);
  // Makes one call over each connection, so that all are up.
  absl::Status Connect();

 private:
  Echo::Stub& StubOf(int member) { return *stubs_[member % stubs_.size()]; }

  std::vector<std::unique_ptr<Echo::Stub>> stubs_;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_PEER_SYSTEMS_BARE_GRPC_CLIENT_H_
