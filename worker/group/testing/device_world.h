// Ranks with a GPU each, of the fake machine: what tests of verbs on devices run on.
#ifndef COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_
#define COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_

#include <memory>
#include <vector>

#include "base/tensor.h"
#include "worker/communicator/nccl/testing/fake_nccl_api.h"
#include "worker/communicator/nccl/testing/nccl_ranks.h"
#include "worker/group/cuda_place.h"
#include "worker/group/testing/verbs_world.h"

namespace cohort::worker {

// Sets the fake machine up anew. Memory of its devices can be read by this process.
class DeviceWorld final : public VerbsWorld {
 public:
  explicit DeviceWorld(int size);
  ~DeviceWorld() override;

  Tensor Allocate(DataType type, const Shape& shape) override;
  Tensor Seen(int rank, const Tensor& tensor) override;
  bool Reduces(DataType type, ReduceOp op) override;

  // By way of the host, of the same ranks.
  Communicator& host(int rank) { return *hosts_[static_cast<size_t>(rank)]; }

 private:
  struct Parts;
  explicit DeviceWorld(Parts parts);

  const std::vector<std::unique_ptr<Communicator>> hosts_;
  std::vector<std::unique_ptr<CudaPlace>> places_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_
