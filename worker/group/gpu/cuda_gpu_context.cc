#include "worker/group/gpu/cuda_gpu_context.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "base/status_macros.h"
#include "base/text/logging.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/communicator/nccl/nccl_stream_communicator.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/streams/graph.h"
#include "worker/cuda/streams/stream.h"
#include "worker/group/bootstrap/nccl_bootstrap.h"
#include "worker/group/gpu/cuda_location.h"

namespace cohort::worker {
namespace {

// How long the first allocation waits for another group's call of NCCL.
constexpr absl::Duration kTimeout = absl::Seconds(10);

// NCCL's communicator outlives the graphs that were captured from it: CudaSide gives them up first.
class CudaReplay final : public DeviceReplay {
 public:
  // `scratch` is memory that the graph uses, besides the tensors of its calls.
  CudaReplay(NcclCommunicator* communicator, int calls, uint32_t digest,
             std::vector<Tensor> scratch, cuda::Graph graph)
      : communicator_(communicator), scratch_(std::move(scratch)), graph_(std::move(graph)) {
    replay_.calls = calls;
    replay_.digest = digest;
    replay_.launch = [this](cudaStream_t stream) { return graph_->Launch(stream); };
  }

  void GiveUp() {
    communicator_ = nullptr;
    graph_.reset();
  }
  absl::Status Run(std::optional<void*> stream, absl::Duration timeout, Instant deadline) override {
    if (communicator_ == nullptr) {
      return absl::FailedPreconditionError(
          "a sequence of a generation that has ended: record it anew");
    }
    if (!stream.has_value()) return communicator_->Run(replay_, deadline);
    NcclCallOptions options;
    options.stream = static_cast<cudaStream_t>(*stream);
    options.timeout = timeout;
    return communicator_->Enqueue(replay_, options, deadline);
  }

 private:
  NcclCommunicator* communicator_;
  const std::vector<Tensor> scratch_;
  std::optional<cuda::Graph> graph_;
  NcclReplay replay_;
};

class CudaSide final : public DeviceSide {
 public:
  CudaSide(std::unique_ptr<NcclCommunicator> communicator, std::unique_ptr<CudaLocation> location,
           int device, Communicator& host)
      : communicator_(std::move(communicator)),
        location_(std::move(location)),
        device_(device),
        host_(host),
        collectives_(communicator_.get(), location_.get(), Device::Cuda(device), &host) {}
  ~CudaSide() override {
    for (const std::weak_ptr<CudaReplay>& weak : replays_) {
      if (const std::shared_ptr<CudaReplay> replay = weak.lock()) replay->GiveUp();
    }
  }

  Communicator& communicator() override { return *communicator_; }
  TensorCollectives& collectives() override { return collectives_; }
  bool has_host_barrier() const override { return communicator_->has_host_barrier(); }
  absl::Status OnStream(void* stream, absl::Duration timeout,
                        absl::FunctionRef<absl::Status(TensorCollectives&)> body) override {
    COHORT_ASSIGN_OR_RETURN(const auto at_device, cuda::AtDeviceOf(stream, device_));
    NcclCallOptions options;
    options.stream = static_cast<cudaStream_t>(stream);
    options.timeout = timeout;
    options.is_recorded = stream != nullptr && stream == captured_.load();
    NcclStreamCommunicator communicator(communicator_.get(), options);
    CudaStreamLocation location(device_, options.stream,
                                options.is_recorded ? &captured_scratch_ : nullptr);
    TensorCollectives collectives(&communicator, &location, Device::Cuda(device_), &host_);
    return body(collectives);
  }
  absl::Status Refuse(void* stream, absl::string_view why, Instant deadline) override {
    // A recording that fails is no call: ranks agree on its replays.
    if (stream != nullptr && stream == captured_.load()) return absl::OkStatus();
    return communicator_->Refuse(why, deadline);
  }
  absl::StatusOr<std::shared_ptr<DeviceReplay>> Capture(
      int calls, uint32_t digest, absl::FunctionRef<absl::Status(void* stream)> body) override {
    // A stream of its own: the communicator's may be queried meanwhile, which would invalidate the
    // capture.
    COHORT_ASSIGN_OR_RETURN(const cuda::Stream stream, cuda::Stream::Create(device_));
    captured_scratch_.clear();
    captured_ = stream.get();
    absl::StatusOr<cuda::Graph> graph =
        cuda::Graph::Capture(stream.get(), [&] { return body(stream.get()); });
    captured_ = nullptr;
    COHORT_RETURN_IF_ERROR(graph.status());
    auto replay = std::make_shared<CudaReplay>(communicator_.get(), calls, digest,
                                               std::move(captured_scratch_), *std::move(graph));
    replays_.push_back(replay);
    return replay;
  }
  absl::Status AwaitStreams(Instant deadline) override { return communicator_->Await(deadline); }

 private:
  // Outlives the location, which copies on its stream.
  const std::unique_ptr<NcclCommunicator> communicator_;
  const std::unique_ptr<CudaLocation> location_;
  const int device_;
  Communicator& host_;
  TensorCollectives collectives_;
  std::vector<std::weak_ptr<CudaReplay>> replays_;
  // The stream of a running capture; null: no capture. Other threads may call meanwhile, on other
  // streams.
  std::atomic<void*> captured_ = nullptr;
  std::vector<Tensor> captured_scratch_;
};

}  // namespace

absl::StatusOr<Tensor> CudaGpuContext::Allocate(DataType type, const Shape& shape) {
  const bool is_shape = std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n >= 0; });
  if (const auto heap = Heap(Clock::Steady().Now() + kTimeout); heap != nullptr && is_shape) {
    if (std::optional<Tensor> tensor = heap->Allocate(type, shape)) return *std::move(tensor);
  }
  return AllocateOnDevice(device_, type, shape);
}

std::shared_ptr<DeviceHeap> CudaGpuContext::Heap(Instant deadline) {
  MutexLock lock(&mutex_);
  if (asked_for_heap_ || options_.heap_bytes == 0) return heap_;
  asked_for_heap_ = true;
  absl::StatusOr<std::shared_ptr<DeviceHeap>> heap =
      DeviceHeap::Create(nccl_, device_, options_.heap_bytes, deadline);
  if (heap.ok()) {
    heap_ = *std::move(heap);
  } else {
    Log(LogLevel::kWarning, "no device memory to register: groups go without",
        {{"device", device_},
         {"bytes", static_cast<int64_t>(options_.heap_bytes)},
         {"error", heap.status().message()}});
  }
  return heap_;
}

absl::Status CudaGpuContext::RegisterHeap(NcclCommunicator& group, Instant deadline) {
  const std::shared_ptr<DeviceHeap> heap = Heap(deadline);
  const absl::StatusOr<bool> registered =
      group.RegisterWhereAllHave(heap == nullptr ? nullptr : heap->memory(), deadline);
  if (registered.ok()) {
    if (heap != nullptr && !*registered) {
      Log(LogLevel::kInfo, "device memory is not registered: not all ranks have some",
          {{"device", device_}, {"rank", group.rank()}});
    }
    return absl::OkStatus();
  }
  // All ranks have the same error, and the group works without registered memory.
  COHORT_RETURN_IF_ERROR(group.Check());
  Log(LogLevel::kWarning, "device memory is not registered",
      {{"device", device_}, {"rank", group.rank()}, {"error", registered.status().message()}});
  return absl::OkStatus();
}

absl::Status CudaGpuContext::AwaitStream(void* stream, absl::Duration timeout) {
  COHORT_ASSIGN_OR_RETURN(const auto at_device, cuda::AtDeviceOf(stream, device_));
  return cuda::Synchronize(static_cast<cudaStream_t>(stream), Clock::Steady().Now() + timeout);
}

absl::StatusOr<std::unique_ptr<DeviceSide>> CudaGpuContext::Form(
    UniqueIdExchange& ids, Communicator& host,
    std::shared_ptr<const NcclOperationLog> operation_log, DeviceProgress* progress,
    absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  NcclBootstrapOptions options;
  options.nccl = nccl_;
  options.device = device_;
  options.timeout = timeout;
  options.operation_log = std::move(operation_log);
  options.progress = progress;
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator,
                          BootstrapNccl(ids, &host, options));
  COHORT_RETURN_IF_ERROR(RegisterHeap(*communicator, deadline));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<CudaLocation> location,
                          CudaLocation::Create(device_, communicator->stream()));
  return std::make_unique<CudaSide>(std::move(communicator), std::move(location), device_, host);
}

}  // namespace cohort::worker
