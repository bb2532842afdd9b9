#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/api/nccl_error.h"
#include "worker/communicator/nccl/benchmark/device_buffers.h"
#include "worker/communicator/nccl/benchmark/device_implementation.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/cuda_error.h"

namespace cohort::benchmark {
namespace {

using worker::NcclApi;
using worker::NcclError;

class NcclImplementation final : public DeviceImplementation {
 public:
  NcclImplementation(std::shared_ptr<NcclApi> nccl, DeviceBuffers buffers,
                     worker::cuda::Stream stream)
      : nccl_(std::move(nccl)), buffers_(std::move(buffers)), stream_(std::move(stream)) {}
  ~NcclImplementation() override {
    if (comm_ != nullptr) nccl_->CommDestroy(comm_);
  }

  absl::Status Begin() {
    ncclUniqueId id;
    COHORT_RETURN_IF_ERROR(NcclError(*nccl_, nccl_->GetUniqueId(&id), "ncclGetUniqueId"));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    COHORT_ASSIGN_OR_RETURN(const worker::cuda::CurrentDevice current,
                            worker::cuda::CurrentDevice::Set(kBenchmarkDevice));
    return NcclError(*nccl_, nccl_->CommInitRankConfig(&comm_, 1, id, 0, &config),
                     "ncclCommInitRankConfig");
  }

  const std::string& name() const override { return name_; }
  absl::Status Prepare(Collective operation, int64_t bytes) override {
    operation_ = operation;
    bytes_ = bytes;
    return buffers_.Fill(bytes);
  }
  absl::StatusOr<absl::Duration> RunBlocking(int calls) override {
    COHORT_ASSIGN_OR_RETURN(const worker::cuda::CurrentDevice current,
                            worker::cuda::CurrentDevice::Set(kBenchmarkDevice));
    const Instant begin = Clock::Steady().Now();
    for (int call = 0; call < calls; ++call) {
      COHORT_RETURN_IF_ERROR(Enqueue());
      COHORT_RETURN_IF_ERROR(AwaitStream());
    }
    return Clock::Steady().Now() - begin;
  }
  absl::StatusOr<Queued> RunQueued(int calls) override {
    COHORT_ASSIGN_OR_RETURN(const worker::cuda::CurrentDevice current,
                            worker::cuda::CurrentDevice::Set(kBenchmarkDevice));
    Queued queued;
    const Instant begin = Clock::Steady().Now();
    for (int call = 0; call < calls; ++call) COHORT_RETURN_IF_ERROR(Enqueue());
    queued.enqueued = Clock::Steady().Now() - begin;
    COHORT_RETURN_IF_ERROR(AwaitStream());
    queued.done = Clock::Steady().Now() - begin;
    return queued;
  }
  absl::Status Verify() override { return buffers_.Verify(bytes_); }

 private:
  // As CUDA itself waits, which is what a program without us would do.
  absl::Status AwaitStream() { return COHORT_CUDA_CALL(cudaStreamSynchronize(stream_.get())); }
  absl::Status Enqueue() {
    const void* const input = buffers_.input();
    void* const output = buffers_.output();
    const auto count = static_cast<size_t>(bytes_) / sizeof(float);
    const cudaStream_t stream = stream_.get();
    switch (operation_) {
      case Collective::kAllReduce:
        return NcclError(
            *nccl_, nccl_->AllReduce(input, output, count, ncclFloat32, ncclSum, comm_, stream),
            "ncclAllReduce");
      case Collective::kAllGather:
        return NcclError(*nccl_, nccl_->AllGather(input, output, count, ncclFloat32, comm_, stream),
                         "ncclAllGather");
      case Collective::kReduceScatter:
        return NcclError(
            *nccl_, nccl_->ReduceScatter(input, output, count, ncclFloat32, ncclSum, comm_, stream),
            "ncclReduceScatter");
      case Collective::kBroadcast:
        return NcclError(*nccl_,
                         nccl_->Broadcast(input, output, count, ncclFloat32, 0, comm_, stream),
                         "ncclBroadcast");
      default:
        return absl::InternalError("no such operation");
    }
  }

  const std::string name_ = "nccl";
  const std::shared_ptr<NcclApi> nccl_;
  DeviceBuffers buffers_;
  const worker::cuda::Stream stream_;
  ncclComm_t comm_ = nullptr;
  Collective operation_ = Collective::kAllReduce;
  int64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceImplementation>> MakeNcclImplementation(
    std::shared_ptr<NcclApi> nccl, int64_t most_bytes) {
  COHORT_ASSIGN_OR_RETURN(DeviceBuffers buffers, DeviceBuffers::Allocate(most_bytes));
  COHORT_ASSIGN_OR_RETURN(worker::cuda::Stream stream,
                          worker::cuda::Stream::Create(kBenchmarkDevice));
  auto implementation =
      std::make_unique<NcclImplementation>(std::move(nccl), std::move(buffers), std::move(stream));
  COHORT_RETURN_IF_ERROR(implementation->Begin());
  return implementation;
}

}  // namespace cohort::benchmark
