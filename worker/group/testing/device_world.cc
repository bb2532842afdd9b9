#include "worker/group/testing/device_world.h"

#include <utility>

#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "worker/communicator/nccl/api/nccl_types.h"
#include "worker/communicator/nccl/nccl_stream_communicator.h"
#include "worker/cuda/testing/fake_runtime.h"

namespace cohort::worker {

struct DeviceWorld::Parts {
  std::vector<std::unique_ptr<Communicator>> hosts;
  std::vector<std::unique_ptr<NcclCommunicator>> groups;  // for collectives on streams
  std::vector<cuda::Stream> streams;
  std::vector<std::unique_ptr<Communicator>> communicators;
  std::vector<std::unique_ptr<TensorLocation>> locations;
};

DeviceWorld::DeviceWorld(int size, Calls calls)
    : DeviceWorld([=] {
        cuda::FakeMachine machine;
        machine.devices = size;
        cuda::ResetFakeRuntime(machine);
        Parts parts;
        NcclRanks ranks = FormNcclRanks(std::make_shared<FakeNcclApi>(), size, Soon());
        for (int rank = 0; rank < size; ++rank) {
          NcclRank& formed = ranks[static_cast<size_t>(rank)];
          EXPECT_TRUE(formed.nccl.ok()) << formed.nccl.status();
          std::unique_ptr<NcclCommunicator> group = *std::move(formed.nccl);
          parts.hosts.push_back(std::move(formed.host));
          if (calls == Calls::kBlock) {
            auto location = CudaLocation::Create(rank, group->stream());
            EXPECT_TRUE(location.ok()) << location.status();
            parts.locations.push_back(*std::move(location));
            parts.communicators.push_back(std::move(group));
            continue;
          }
          auto stream = cuda::Stream::Create(rank);
          EXPECT_TRUE(stream.ok()) << stream.status();
          NcclCallOptions options;
          options.stream = stream->get();
          options.timeout = absl::Seconds(60);
          parts.communicators.push_back(
              std::make_unique<NcclStreamCommunicator>(group.get(), options));
          parts.locations.push_back(std::make_unique<CudaStreamLocation>(rank, stream->get()));
          parts.groups.push_back(std::move(group));
          parts.streams.push_back(*std::move(stream));
        }
        return parts;
      }()) {}

DeviceWorld::DeviceWorld(Parts parts)
    : CollectiveWorld(Medium::kProcess, std::move(parts.communicators)),
      hosts_(std::move(parts.hosts)),
      groups_(std::move(parts.groups)),
      streams_(std::move(parts.streams)),
      locations_(std::move(parts.locations)) {
  for (size_t rank = 0; rank < hosts_.size(); ++rank) {
    const int number = static_cast<int>(rank);
    collectives().push_back(std::make_unique<TensorCollectives>(
        &communicator(number), locations_[rank].get(), Device::Cuda(number), hosts_[rank].get()));
  }
}

// Collectives and communicators end before the objects that they use.
DeviceWorld::~DeviceWorld() { Clear(); }

absl::Status DeviceWorld::Await(int rank) {
  if (streams_.empty()) return absl::OkStatus();
  const auto at = static_cast<size_t>(rank);
  COHORT_RETURN_IF_ERROR(groups_[at]->Await(Soon()));
  return cuda::Synchronize(streams_[at].get(), Soon());
}

Tensor DeviceWorld::Allocate(DataType type, const Shape& shape) {
  const absl::StatusOr<Tensor> tensor = AllocateOnDevice(0, type, shape);
  EXPECT_TRUE(tensor.ok()) << tensor.status();
  // A tensor on the host, because the test fills and reads it.
  return Tensor(tensor->data(), type, shape, tensor->owner());
}

Tensor DeviceWorld::Seen(int rank, const Tensor& tensor) {
  return Tensor::Strided(tensor.data(), tensor.type(), tensor.shape(), tensor.strides(),
                         tensor.owner(), Device::Cuda(rank));
}

// Whether NCCL and the model compute the same: NCCL rounds small floats at every step, and takes
// every byte as a bool.
bool DeviceWorld::Reduces(DataType type, ReduceOp op) {
  if (type == DataType::kBool) return false;
  if (op == ReduceOp::kSum && IsFloating(type) && SizeOf(type) < 4) return false;
  if (op != ReduceOp::kSum && op != ReduceOp::kMin && op != ReduceOp::kMax) return false;
  return ReductionFor(type, op, kFakeComputeCapability, /*ranks=*/2).ok();
}

}  // namespace cohort::worker
