#include "worker/group/testing/device_world.h"

#include <utility>

#include "gtest/gtest.h"
#include "worker/communicator/nccl/nccl_types.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker {

struct DeviceWorld::Parts {
  std::vector<std::unique_ptr<Communicator>> hosts;
  std::vector<std::unique_ptr<Communicator>> devices;
  std::vector<std::unique_ptr<CudaPlace>> places;
};

DeviceWorld::DeviceWorld(int size)
    : DeviceWorld([size] {
        cuda::FakeMachine machine;
        machine.devices = size;
        cuda::ResetFakeRuntime(machine);
        Parts parts;
        NcclRanks ranks = FormNcclRanks(std::make_shared<FakeNcclApi>(), size, Soon());
        for (int rank = 0; rank < size; ++rank) {
          NcclRank& formed = ranks[static_cast<size_t>(rank)];
          EXPECT_TRUE(formed.nccl.ok()) << formed.nccl.status();
          auto place = CudaPlace::Create(rank, (*formed.nccl)->stream());
          EXPECT_TRUE(place.ok()) << place.status();
          parts.places.push_back(*std::move(place));
          parts.hosts.push_back(std::move(formed.host));
          parts.devices.push_back(*std::move(formed.nccl));
        }
        return parts;
      }()) {}

DeviceWorld::DeviceWorld(Parts parts)
    : VerbsWorld(Medium::kProcess, std::move(parts.devices)),
      hosts_(std::move(parts.hosts)),
      places_(std::move(parts.places)) {
  for (size_t rank = 0; rank < hosts_.size(); ++rank) {
    const int number = static_cast<int>(rank);
    verbs().push_back(std::make_unique<TensorVerbs>(&communicator(number), places_[rank].get(),
                                                    Device::Cuda(number), hosts_[rank].get()));
  }
}

// Verbs and communicators go before what they live on.
DeviceWorld::~DeviceWorld() { Clear(); }

Tensor DeviceWorld::Allocate(DataType type, const Shape& shape) {
  const absl::StatusOr<Tensor> tensor = AllocateOnDevice(0, type, shape);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  // For the test, which fills and reads it.
  return Tensor(tensor->data(), type, shape, tensor->owner());
}

Tensor DeviceWorld::Seen(int rank, const Tensor& tensor) {
  return Tensor::Strided(tensor.data(), tensor.type(), tensor.shape(), tensor.strides(),
                         tensor.owner(), Device::Cuda(rank));
}

// What NCCL and the model compute alike: it rounds small floats at every step, and takes every byte
// for a bool.
bool DeviceWorld::Reduces(DataType type, ReduceOp op) {
  if (type == DataType::kBool) return false;
  if (op == ReduceOp::kSum && IsFloating(type) && SizeOf(type) < 4) return false;
  if (op != ReduceOp::kSum && op != ReduceOp::kMin && op != ReduceOp::kMax) return false;
  return ReductionFor(type, op, kFakeComputeCapability).ok();
}

}  // namespace cohort::worker
