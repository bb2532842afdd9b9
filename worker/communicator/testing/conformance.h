// The tests that every backend must pass: one suite, split by collective over conformance_*.cc. A
// backend's test file says how its ranks are made:
//
//   INSTANTIATE_TEST_SUITE_P(Host, ConformanceTest, ::testing::Values(Backend{...}));
#ifndef COHORT_WORKER_COMMUNICATOR_TESTING_CONFORMANCE_H_
#define COHORT_WORKER_COMMUNICATOR_TESTING_CONFORMANCE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "gtest/gtest.h"
#include "worker/communicator/communicator.h"
#include "worker/communicator/testing/test_allocator.h"

namespace cohort::worker {

using Communicators = std::vector<std::unique_ptr<Communicator>>;
// Bytes in the memory that the backend under test uses.
using Bytes = std::vector<char, TestAllocator<char>>;

struct Backend {
  std::string name;
  std::vector<int> sizes;                    // of groups that it can have
  std::function<Communicators(int)> create;  // one for each rank
  TestMemory* memory = nullptr;              // where tensors lie; null: memory of the process
  bool every_second = false;                 // tensor lies there, and the others do not
  // Which reductions it has in a group of so many ranks; null: all that CheckReducible allows.
  std::function<bool(DataType, ReduceOp, int ranks)> reduces;
  // It announces messages by control messages of the backend below it.
  bool uses_control = false;
  // Messages between other ranks go on when a rank has left in order.
  bool outlives_leavers = true;
  // Rounds at each step, in any order, and keeps the value of a bool that is true.
  bool rounds_at_each_step = false;
};

class ConformanceTest : public ::testing::TestWithParam<Backend> {
 public:
  static Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

 protected:
  void SetUp() override { SetTestMemory(GetParam().memory, GetParam().every_second); }
  void TearDown() override { SetTestMemory(nullptr); }

  // The ranks of one group, each on a thread of its own.
  class World {
   public:
    explicit World(Communicators ranks) : ranks_(std::move(ranks)) {}
    int size() const { return static_cast<int>(ranks_.size()); }
    Communicator& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
    // The statuses by rank.
    std::vector<absl::Status> Run(const std::function<absl::Status(Communicator&)>& body);
    // Destroys that rank's communicator, and tells the others. Later calls of Run are without it.
    void Leave(int rank, const std::string& cause);

   private:
    Communicators ranks_;
  };

  // For each size of group that the backend has.
  void ForEachWorld(const std::function<void(World&)>& body);
  World MakeWorld(int size) { return World(GetParam().create(size)); }
  bool HasSize(int size) const;

  // The input of a rank: bytes that every test makes anew, such that sums of a few numbers neither
  // overflow nor are NaN.
  static Bytes Input(int rank, int64_t count, DataType type);
  static std::vector<Bytes> Inputs(int size, int64_t count, DataType type);
  // The reduction of `count` elements of each input, from element `at` on.
  static Bytes Reduced(const std::vector<Bytes>& inputs, int64_t at, int64_t count, DataType type,
                       const Reduction& reduction);
  // Whether a reduction's result is what the backend may give for `expected`.
  static bool Matches(const Bytes& result, const Bytes& expected, DataType type);
  static bool Has(DataType type, ReduceOp op, int ranks);
  static Bytes Part(const Bytes& bytes, int64_t at, int64_t count, DataType type);

  // None, one, odd ones, and those around where a backend may change its algorithm.
  static std::vector<int64_t> Counts(DataType type);
  static std::vector<int64_t> SmallCounts() { return {0, 1, 37}; }

  static void ExpectOk(const std::vector<absl::Status>& statuses, const std::string& what);
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_COMMUNICATOR_TESTING_CONFORMANCE_H_
