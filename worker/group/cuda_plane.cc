#include "worker/group/cuda_plane.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "base/logging.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/communicator/nccl/nccl_stream_communicator.h"
#include "worker/cuda/device.h"
#include "worker/cuda/graph.h"
#include "worker/cuda/stream.h"
#include "worker/group/cuda_place.h"
#include "worker/group/device_formation.h"

namespace cohort::worker {
namespace {

// How long the first allocation waits for another group's call of NCCL.
constexpr absl::Duration kPatience = absl::Seconds(10);

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
  CudaSide(std::unique_ptr<NcclCommunicator> communicator, std::unique_ptr<CudaPlace> place,
           int device, Communicator& host)
      : communicator_(std::move(communicator)),
        place_(std::move(place)),
        device_(device),
        host_(host),
        verbs_(communicator_.get(), place_.get(), Device::Cuda(device), &host) {}
  ~CudaSide() override {
    for (const std::weak_ptr<CudaReplay>& weak : replays_) {
      if (const std::shared_ptr<CudaReplay> replay = weak.lock()) replay->GiveUp();
    }
  }

  Communicator& communicator() override { return *communicator_; }
  TensorVerbs& verbs() override { return verbs_; }
  bool meets() const override { return communicator_->meets(); }
  absl::Status OnStream(void* stream, absl::Duration timeout,
                        absl::FunctionRef<absl::Status(TensorVerbs&)> body) override {
    COHORT_ASSIGN_OR_RETURN(const auto at_device, cuda::AtDeviceOf(stream, device_));
    NcclCallOptions options;
    options.stream = static_cast<cudaStream_t>(stream);
    options.timeout = timeout;
    options.is_recorded = stream != nullptr && stream == captured_.load();
    NcclStreamCommunicator communicator(communicator_.get(), options);
    CudaStreamPlace place(device_, options.stream,
                          options.is_recorded ? &captured_scratch_ : nullptr);
    TensorVerbs verbs(&communicator, &place, Device::Cuda(device_), &host_);
    return body(verbs);
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
  // Outlives the place, which copies on its stream.
  const std::unique_ptr<NcclCommunicator> communicator_;
  const std::unique_ptr<CudaPlace> place_;
  const int device_;
  Communicator& host_;
  TensorVerbs verbs_;
  std::vector<std::weak_ptr<CudaReplay>> replays_;
  // The stream of a running capture; null: no capture. Other threads may call meanwhile, on other
  // streams.
  std::atomic<void*> captured_ = nullptr;
  std::vector<Tensor> captured_scratch_;
};

}  // namespace

absl::StatusOr<Tensor> CudaPlane::Allocate(DataType type, const Shape& shape) {
  const bool is_shape = std::all_of(shape.begin(), shape.end(), [](int64_t n) { return n >= 0; });
  if (const auto heap = Heap(Clock::Steady().Now() + kPatience); heap != nullptr && is_shape) {
    if (std::optional<Tensor> tensor = heap->Allocate(type, shape)) return *std::move(tensor);
  }
  return AllocateOnDevice(device_, type, shape);
}

std::shared_ptr<DeviceHeap> CudaPlane::Heap(Instant deadline) {
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

absl::Status CudaPlane::RegisterHeap(NcclCommunicator& group, Instant deadline) {
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

absl::StatusOr<std::unique_ptr<DeviceSide>> CudaPlane::Form(IdExchange& ids, Communicator& host,
                                                            std::shared_ptr<const NcclBoard> board,
                                                            DeviceProgress* progress,
                                                            absl::Duration timeout) {
  const Instant deadline = Clock::Steady().Now() + timeout;
  DeviceFormationOptions options;
  options.nccl = nccl_;
  options.device = device_;
  options.timeout = timeout;
  options.board = std::move(board);
  options.progress = progress;
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<NcclCommunicator> communicator,
                          FormOnDevices(ids, &host, options));
  COHORT_RETURN_IF_ERROR(RegisterHeap(*communicator, deadline));
  COHORT_ASSIGN_OR_RETURN(std::unique_ptr<CudaPlace> place,
                          CudaPlace::Create(device_, communicator->stream()));
  return std::make_unique<CudaSide>(std::move(communicator), std::move(place), device_, host);
}

}  // namespace cohort::worker
