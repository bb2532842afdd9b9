// Ranks with a GPU each of the fake machine, for tests of collectives on devices.
#ifndef COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_
#define COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_

#include <memory>
#include <vector>

#include "base/tensor/tensor.h"
#include "worker/communicator/nccl/api/testing/fake_nccl_api.h"
#include "worker/communicator/nccl/testing/nccl_ranks.h"
#include "worker/cuda/streams/stream.h"
#include "worker/group/gpu/cuda_location.h"
#include "worker/group/testing/collective_world.h"

namespace cohort::worker {

// Starts the fake machine anew. This process can read the memory of its devices.
class DeviceWorld final : public CollectiveWorld {
 public:
  // Collectives block, or enqueue work on each rank's stream.
  enum class Calls { kBlock, kOnStreams };
  explicit DeviceWorld(int size, Calls calls = Calls::kBlock);
  ~DeviceWorld() override;

  Tensor Allocate(DataType type, const Shape& shape) override;
  Tensor Seen(int rank, const Tensor& tensor) override;
  absl::Status Await(int rank) override;
  bool Reduces(DataType type, ReduceOp op) override;

  // The communicator of the same ranks through the host.
  Communicator& host(int rank) { return *hosts_[static_cast<size_t>(rank)]; }

 private:
  struct Parts;
  explicit DeviceWorld(Parts parts);

  const std::vector<std::unique_ptr<Communicator>> hosts_;
  const std::vector<std::unique_ptr<NcclCommunicator>> groups_;
  std::vector<cuda::Stream> streams_;
  std::vector<std::unique_ptr<TensorLocation>> locations_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_
