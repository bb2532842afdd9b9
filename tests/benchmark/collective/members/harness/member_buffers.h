// A member's own memory for a piece of work.
#ifndef COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_BUFFERS_H_
#define COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_BUFFERS_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "tests/benchmark/collective/processes/work.h"

namespace cohort::benchmark {

// Private pages, as malloc gives for a large block. Allocate writes all of them once, and the
// destructor unmaps them.
class Block {
 public:
  static absl::StatusOr<std::unique_ptr<Block>> Allocate(int64_t elements);
  ~Block();

  float* data() const { return data_; }

 private:
  Block(float* data, size_t bytes) : data_(data), bytes_(bytes) {}

  float* const data_;
  const size_t bytes_;
};

struct Buffers {
  static absl::StatusOr<Buffers> Allocate(const Work& work, int rank, int members);

  Extents extents;
  std::unique_ptr<Block> input;
  std::unique_ptr<Block> output;
};

}  // namespace cohort::benchmark

#endif  // COHORT_TESTS_BENCHMARK_COLLECTIVE_MEMBERS_HARNESS_MEMBER_BUFFERS_H_
