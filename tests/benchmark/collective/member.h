// What every implementation of the collective benchmark gives: one rank's side of it.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBER_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBER_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/benchmark/collective/work.h"

namespace cohort::benchmark {

// One piece of work, ready to run: memory, registrations, connections.
class Prepared {
 public:
  virtual ~Prepared() = default;

  // As many elements as ExtentsOf says, where an implementation wants them. All pages have been
  // written. Who prepares need not fill them.
  virtual float* input() = 0;
  virtual float* output() = 0;

  // The operation, again and again, nothing between; all ranks call it alike. When it returns, this
  // rank's output is complete and its input may be changed.
  virtual absl::Status Run(int64_t iterations) = 0;
};

// A rank of a group that has been formed; confined to one thread. It must burn no CPU while nobody
// is inside a call.
class Member {
 public:
  virtual ~Member() = default;

  virtual int rank() const = 0;

  // The implementation's own.
  virtual absl::Status Barrier() = 0;

  // All ranks call it alike, in the same order; several may be ready at once. UNIMPLEMENTED (on all
  // ranks): not done this way.
  virtual absl::StatusOr<std::unique_ptr<Prepared>> Prepare(const Work& work) = 0;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBER_H_
