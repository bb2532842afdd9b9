// The example of README.md: each rank is one process of this program, and all ranks sum a tensor.
//
//   all_reduce COORDINATOR RANK WORLD_SIZE
//
// Exit status: 0 if the sum is right, 1 on an error or a wrong sum, 2 on wrong usage.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "base/collective/reduction.h"
#include "base/status_macros.h"
#include "base/tensor/tensor.h"
#include "client/collective/group.h"
#include "worker/group/local_group.h"

namespace {

absl::Status SumOverRanks(const std::string& coordinator, int rank, int world_size) {
  cohort::worker::LocalGroupOptions options;
  options.membership.connection.address = coordinator;  // such as "coordinator:7700"
  options.membership.group = "weights";
  options.membership.rank = rank;
  options.membership.world_size = world_size;
  // Blocks until all ranks have joined.
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<cohort::client::Group> group,
                          cohort::worker::LocalGroup::Create(options));
  COHORT_ASSIGN_OR_RETURN(auto tensor, group->Allocate(cohort::DataType::kF32, {1024}));
  float* elements = static_cast<float*>(tensor.data());
  for (int i = 0; i < 1024; ++i) elements[i] = static_cast<float>(rank);
  COHORT_RETURN_IF_ERROR(group->AllReduce(tensor, tensor, {cohort::ReduceOp::kSum}));

  const auto expected = static_cast<float>(world_size * (world_size - 1) / 2);
  for (int i = 0; i < 1024; ++i) {
    if (elements[i] != expected) return absl::DataLossError("the sum is wrong");
  }
  std::printf("rank %d of %d: the sum is %g\n", rank, world_size, expected);
  // A rank that left earlier could end the call of a slower rank.
  return group->AllGatherObjects("done").status();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: all_reduce COORDINATOR RANK WORLD_SIZE\n");
    return 2;
  }
  const absl::Status status = SumOverRanks(argv[1], std::atoi(argv[2]), std::atoi(argv[3]));
  if (status.ok()) return 0;
  std::fprintf(stderr, "all_reduce: %s\n", status.ToString().c_str());
  return 1;
}
