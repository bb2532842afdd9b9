// A verb chosen by chance, on all ranks of a group, with what each must get from it, worked out in
// one place from all inputs.
#ifndef COHORT_TESTS_PARALLEL_COLLECTIVE_ROUNDS_H_
#define COHORT_TESTS_PARALLEL_COLLECTIVE_ROUNDS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/tensor.h"
#include "client/collective/group.h"
#include "client/parallel/collectives/collectives.h"
#include "tests/parallel/parallel_test.h"
#include "worker/group/testing/tensor_model.h"

namespace cohort::testing {

// What all ranks call, and what each gives and must get. No result: of those that are not the root.
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
  // That can be summed, on GPUs too.
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
  // Does it on all ranks. What is not as it should be is a failure of the test.
  void Run(const CollectivePlan& plan, uint32_t layouts);
  void RunAny(uint32_t seed) { Run(CollectivePlans(size(), seed).Any(), seed); }
};

}  // namespace cohort::testing

#endif  // COHORT_TESTS_PARALLEL_COLLECTIVE_ROUNDS_H_
