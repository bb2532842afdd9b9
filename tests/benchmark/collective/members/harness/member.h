// The interface that every implementation of the collective benchmark has: one rank's side of it.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/benchmark/collective/processes/work.h"

namespace cohort::benchmark {

// One piece of work, ready to run: memory, registrations, connections.
class Prepared {
 public:
  virtual ~Prepared() = default;

  // As many elements as ExtentsOf says, where an implementation wants them. All pages have been
  // written; Prepare need not fill them.
  virtual float* input() = 0;
  virtual float* output() = 0;

  // The operation, again and again, nothing between; all ranks call it alike. When it returns, this
  // rank's output is complete and its input may be changed.
  virtual absl::Status Run(int64_t iterations) = 0;
};

// A rank of a group that has formed; confined to one thread. It uses no CPU while no rank is inside
// a call.
class Member {
 public:
  virtual ~Member() = default;

  virtual int rank() const = 0;

  // The barrier of the implementation.
  virtual absl::Status Barrier() = 0;

  // All ranks call it alike, in the same order; several pieces of work may be ready at once.
  // UNIMPLEMENTED (on all ranks): the implementation does not run this work.
  virtual absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Work& work) = 0;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_H_
