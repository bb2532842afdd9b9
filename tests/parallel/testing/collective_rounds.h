// A random collective on all ranks of a group, with each rank's expected result, computed in one
// place from all inputs.
#ifndef COHORT_TESTS_PARALLEL_TESTING_COLLECTIVE_ROUNDS_H_
#define COHORT_TESTS_PARALLEL_TESTING_COLLECTIVE_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/collectives.h"
#include "tests/parallel/testing/parallel_test_base.h"
#include "worker/group/testing/tensor_model.h"

namespace cohort::testing {

// The call of all ranks, with each rank's input and expected result. Ranks that are not the root
// may have no result.
struct CollectivePlan {
  std::string what;
  std::vector<worker::TensorModel> inputs;
  std::vector<std::optional<worker::TensorModel>> results;
  std::function<absl::StatusOr<std::optional<Tensor>>(client::Group&, const Tensor&)> call;
};

class CollectivePlans {
 public:
  CollectivePlans(int ranks, uint32_t seed) : ranks_(ranks), random_(seed) {}

  CollectivePlan Any();
  CollectivePlan ReduceScatter(const Shape& shape, int dim);

 private:
  using Models = std::vector<worker::TensorModel>;

  int Below(int bound) { return static_cast<int>(random_() % static_cast<uint32_t>(bound)); }
  bool Perhaps() { return Below(2) == 0; }
  DataType AnyType();
  // A type that can be summed, also on GPUs.
  DataType SummableType();
  // Mostly small, often with an extent of 0; some rows are large.
  Shape AnyShape(int least_dims);
  client::Sizes AnySizes();
  Models InputsOf(DataType type, const Shape& shape);
  Models Ragged(DataType type, const Shape& shape, int dim, const client::Sizes& sizes);
  void AllGet(CollectivePlan& plan, const worker::TensorModel& result) const;
  void RootGets(CollectivePlan& plan, int root, const worker::TensorModel& result) const;

  CollectivePlan AllReduce();
  CollectivePlan Reduce();
  CollectivePlan Broadcast();
  CollectivePlan AllGather();
  CollectivePlan AnyReduceScatter();
  CollectivePlan Gather();
  CollectivePlan Scatter();
  CollectivePlan AllToAll();
  CollectivePlan AllGatherV();
  CollectivePlan ReduceScatterV();
  CollectivePlan GatherV();
  CollectivePlan AllToAllV();

  const int ranks_;
  std::mt19937 random_;
};

class CollectivesTest : public ParallelTest {
 protected:
  // Runs the plan on all ranks. A result that differs from the expected one fails the test.
  void Run(const CollectivePlan& plan, uint32_t layouts);
  void RunAny(uint32_t seed) { Run(CollectivePlans(size(), seed).Any(), seed); }
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_PARALLEL_TESTING_COLLECTIVE_ROUNDS_H_
