// Ranks with a GPU each of the fake machine, for tests of collectives on devices.
#ifndef COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_
#define COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_

#include <memory>
#include <vector>

#include "base/tensor.h"
#include "worker/communicator/nccl/testing/fake_nccl_api.h"
#include "worker/communicator/nccl/testing/nccl_ranks.h"
#include "worker/cuda/stream.h"
#include "worker/group/cuda_place.h"
#include "worker/group/testing/verbs_world.h"

namespace cohort::worker {

// Starts the fake machine anew. This process can read the memory of its devices.
class DeviceWorld final : public VerbsWorld {
 public:
  // Verbs block, or enqueue work on each rank's stream.
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
  std::vector<std::unique_ptr<TensorPlace>> places_;
};

}  // namespace cohort::worker

#endif  // COHORT_WORKER_GROUP_TESTING_DEVICE_WORLD_H_
