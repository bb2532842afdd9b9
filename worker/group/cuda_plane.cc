#include "worker/group/cuda_plane.h"

#include "base/status_macros.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/communicator/nccl/nccl_stream_communicator.h"
#include "worker/group/cuda_place.h"
#include "worker/group/device_formation.h"

namespace cohort::worker {
namespace {

class CudaSide final : public DeviceSide {
 public:
  CudaSide(std::unique_ptr<NcclCommunicator> communicator, std::unique_ptr<CudaPlace> place,
           int device, Communicator& host)
      : communicator_(std::move(communicator)),
        place_(std::move(place)),
        device_(device),
        host_(host),
        verbs_(communicator_.get(), place_.get(), Device::Cuda(device), &host) {}

  Communicator& communicator() override { return *communicator_; }
  TensorVerbs& verbs() override { return verbs_; }
  absl::Status OnStream(void* stream, absl::Duration timeout,
                        absl::FunctionRef<absl::Status(TensorVerbs&)> body) override {
    NcclCallOptions options;
    options.stream = static_cast<cudaStream_t>(stream);
    options.timeout = timeout;
    NcclStreamCommunicator communicator(communicator_.get(), options);
    CudaStreamPlace place(device_, options.stream);
    TensorVerbs verbs(&communicator, &place, Device::Cuda(device_), &host_);
    return body(verbs);
  }
  absl::Status AwaitStreams(Instant deadline) override { return communicator_->Await(deadline); }

 private:
  // The place copies on the communicator's stream.
  const std::unique_ptr<NcclCommunicator> communicator_;
  const std::unique_ptr<CudaPlace> place_;
  const int device_;
  Communicator& host_;
  TensorVerbs verbs_;
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
  return std::make_unique<CudaSide>(std::move(communicator), std::move(place), device_, host);
}

}  // namespace cohort::worker
