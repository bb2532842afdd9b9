// All members of one group in one process, over as many connections as wanted.
#ifndef COHORT_TESTS_BENCHMARK_RENDEZVOUS_BENCHMARK_GROUP_H_
#define COHORT_TESTS_BENCHMARK_RENDEZVOUS_BENCHMARK_GROUP_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/rendezvous/call/connection.h"
#include "client/rendezvous/process_group/process_group.h"
#include "tests/benchmark/rendezvous/implementation.h"

namespace cohort::benchmark {

class BenchmarkGroup {
 public:
  // Makes the connections and joins all members; member i uses connection i % connections.
  // `joining` (may be null) gets the time from the first call until all had the complete view.
  static absl::StatusOr<std::unique_ptr<BenchmarkGroup>> Join(const std::string& address,
                                                              int members, int connections,
                                                              absl::Duration* joining = nullptr);
  // Closes the group for all members at once, so that their leaving does not go on during the next
  // measurement.
  ~BenchmarkGroup();

  int size() const { return static_cast<int>(members_.size()); }
  client::ProcessGroup& member(int rank) { return *members_[rank]; }

  absl::StatusOr<Sample> TimeBarrier(absl::Duration timeout = absl::Seconds(60));
  absl::StatusOr<Sample> TimeAllGather(const std::string& object);

 private:
  BenchmarkGroup() = default;

  std::vector<std::shared_ptr<client::Connection>> connections_;
  std::vector<std::unique_ptr<client::ProcessGroup>> members_;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_RENDEZVOUS_BENCHMARK_GROUP_H_
