#include "worker/group/cuda_plane.h"

#include "base/status_macros.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/group/cuda_place.h"
#include "worker/group/device_formation.h"

namespace cohort::worker {
namespace {

class CudaSide final : public DeviceSide {
 public:
  CudaSide(std::unique_ptr<NcclCommunicator> communicator, std::unique_ptr<CudaPlace> place)
      : communicator_(std::move(communicator)), place_(std::move(place)) {}

  Communicator& communicator() override { return *communicator_; }
  TensorPlace& place() override { return *place_; }

 private:
  // The place copies on the communicator's stream.
  const std::unique_ptr<NcclCommunicator> communicator_;
  const std::unique_ptr<CudaPlace> place_;
};

}  // namespace

absl::StatusOr<Tensor> CudaPlane::Allocate(DataType type, const Shape& shape) {
  return AllocateOnDevice(device_, type, shape);
}

absl::StatusOr<std::unique_ptr<DeviceSide>> CudaPlane::Form(client::ProcessGroup& group,
                                                            Communicator& host,
                                                            absl::Duration timeout) {
  DeviceFormationOptions options;
  options.nccl = nccl_;
  options.device = device_;
  options.timeout = timeout;
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator,
                          FormOnDevices(group, &host, options));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<CudaPlace> place,
                          CudaPlace::Create(device_, communicator->stream()));
  return std::make_unique<CudaSide>(std::move(communicator), std::move(place));
}

}  // namespace cohort::worker
