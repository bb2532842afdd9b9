#include <utility>

#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/benchmark/device_buffers.h"
#include "worker/communicator/nccl/benchmark/device_implementation.h"
#include "worker/communicator/nccl/clique/nccl_clique.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/communicator/single/single_communicator.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/device/cuda_error.h"
#include "worker/cuda/streams/stream.h"

namespace cohort::benchmark {
namespace {

using worker::NcclCommunicator;

Instant Soon() { return Clock::Steady().Now() + absl::Seconds(60); }

class CohortImplementation final : public DeviceImplementation {
 public:
  CohortImplementation(DeviceBuffers buffers, worker::cuda::Stream stream,
                       std::unique_ptr<worker::Communicator> host,
                       std::unique_ptr<NcclCommunicator> group)
      : buffers_(std::move(buffers)),
        stream_(std::move(stream)),
        host_(std::move(host)),
        group_(std::move(group)) {}

  const std::string& name() const override { return name_; }
  absl::Status Prepare(Collective operation, int64_t bytes) override {
    operation_ = operation;
    bytes_ = bytes;
    return buffers_.Fill(bytes);
  }
  absl::StatusOr<absl::Duration> RunBlocking(int calls) override {
    const Instant begin = Clock::Steady().Now();
    for (int call = 0; call < calls; ++call) COHORT_RETURN_IF_ERROR(Call());
    return Clock::Steady().Now() - begin;
  }
  absl::StatusOr<Queued> RunQueued(int calls) override {
    Queued queued;
    const Instant begin = Clock::Steady().Now();
    for (int call = 0; call < calls; ++call) COHORT_RETURN_IF_ERROR(Enqueue());
    queued.enqueued = Clock::Steady().Now() - begin;
    // As CUDA itself waits, which is what a program does with a stream of its own.
    COHORT_RETURN_IF_ERROR(COHORT_CUDA_CALL(cudaStreamSynchronize(stream_.get())));
    queued.done = Clock::Steady().Now() - begin;
    COHORT_RETURN_IF_ERROR(group_->Check());
    return queued;
  }
  absl::Status Verify() override { return buffers_.Verify(bytes_); }

 private:
  FlatCall Operation() const {
    FlatCall operation;
    operation.collective = operation_;
    operation.count = bytes_ / static_cast<int64_t>(sizeof(float));
    operation.type = DataType::kF32;
    return operation;
  }
  absl::Status Call() {
    return group_->Run(Operation(), buffers_.input(), buffers_.output(), Soon());
  }
  absl::Status Enqueue() {
    worker::NcclCallOptions options;
    options.stream = stream_.get();
    return group_->Enqueue(Operation(), buffers_.input(), buffers_.output(), options, Soon());
  }

  const std::string name_ = "cohort";
  DeviceBuffers buffers_;
  const worker::cuda::Stream stream_;
  const std::unique_ptr<worker::Communicator> host_;
  const std::unique_ptr<NcclCommunicator> group_;
  Collective operation_ = Collective::kAllReduce;
  int64_t bytes_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceImplementation>> MakeCohortImplementation(
    std::shared_ptr<worker::NcclApi> nccl, int64_t most_bytes) {
  COHORT_ASSIGN_OR_RETURN(const worker::cuda::DeviceInfo device,
                          worker::cuda::DescribeDevice(kBenchmarkDevice));
  COHORT_ASSIGN_OR_RETURN(DeviceBuffers buffers, DeviceBuffers::Allocate(most_bytes));
  worker::NcclCommunicatorInit init;
  init.device = kBenchmarkDevice;
  init.compute_capability = device.compute_capability.first * 10 + device.compute_capability.second;
  COHORT_ASSIGN_OR_RETURN(std::string id, worker::NewNcclId(*nccl));
  init.ids = {std::move(id)};
  init.nccl = std::move(nccl);
  init.name = "benchmark";
  auto host = std::make_unique<worker::SingleCommunicator>();
  init.host = host.get();
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> group,
                          NcclCommunicator::Form(std::move(init), Soon()));
  COHORT_ASSIGN_OR_RETURN(worker::cuda::Stream stream,
                          worker::cuda::Stream::Create(kBenchmarkDevice));
  return std::make_unique<CohortImplementation>(std::move(buffers), std::move(stream),
                                                std::move(host), std::move(group));
}

absl::Status CheckForGpu() { return worker::cuda::DeviceCount().status(); }

}  // namespace cohort::benchmark
