#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/communicator/nccl/api/nccl_types.h"
#include "worker/communicator/nccl/nccl_communicator.h"
#include "worker/communicator/nccl/nccl_stream_communicator.h"
#include "worker/cuda/device/cuda_device.h"
#include "worker/cuda/memory/copy.h"
#include "worker/cuda/memory/device_memory.h"
#include "worker/cuda/streams/graph.h"
#include "worker/cuda/streams/stream.h"
#include "worker/group/bootstrap/nccl_bootstrap.h"
#include "worker/group/testing/nccl_settings.h"
#include "worker/group/testing/rank_program/backend.h"
#include "worker/group/testing/rank_program/nccl_of_program.h"

namespace cohort::testing {
namespace {

using worker::Communicator;

constexpr int kDevice = 0;

// Keeps variables that are set already.
void SetUpNccl(int rank, const std::string& ras_address) {
  std::vector<std::pair<std::string, std::string>> settings = NcclSettingsOnOneGpu(rank);
  settings.emplace_back("NCCL_RAS_ENABLE", ras_address.empty() ? "0" : "1");
  for (const auto& [name, value] : settings) setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
  if (!ras_address.empty()) setenv("NCCL_RAS_ADDR", ras_address.c_str(), /*overwrite=*/1);
}

class DeviceBackend final : public Backend {
 public:
  DeviceBackend(std::shared_ptr<worker::NcclApi> nccl, int compute_capability,
                worker::cuda::Stream stream)
      : nccl_(std::move(nccl)),
        compute_capability_(compute_capability),
        stream_(std::move(stream)) {}

  absl::StatusOr<Formed> Form(client::ProcessGroup& group, std::unique_ptr<Communicator> host,
                              absl::Duration timeout) override {
    worker::NcclBootstrapOptions options;
    options.nccl = nccl_;
    options.device = kDevice;
    options.timeout = timeout;
    Formed formed;
    formed.host = std::move(host);
    worker::MemberUniqueIds ids(&group);
    COHORT_ASSIGN_OR_RETURN(formed.communicator,
                            worker::BootstrapNccl(ids, formed.host.get(), options));
    return formed;
  }
  absl::Status RunRecorded(Communicator& communicator, int calls,
                           absl::FunctionRef<absl::Status(Communicator&)> body, int times,
                           Instant deadline) override {
    auto& group = static_cast<worker::NcclCommunicator&>(communicator);
    COHORT_ASSIGN_OR_RETURN(const worker::cuda::Stream stream,
                            worker::cuda::Stream::Create(kDevice));
    worker::NcclCallOptions options;
    options.stream = stream.get();
    COHORT_ASSIGN_OR_RETURN(const worker::cuda::Graph graph,
                            worker::cuda::Graph::Capture(stream.get(), [&] {
                              worker::NcclStreamCommunicator recorded(&group, options);
                              return body(recorded);
                            }));
    worker::NcclReplay replay;
    replay.calls = calls;
    replay.digest = static_cast<uint32_t>(calls);
    replay.launch = [&graph](cudaStream_t on) { return graph.Launch(on); };
    for (int i = 0; i < times; ++i) COHORT_RETURN_IF_ERROR(group.Run(replay, deadline));
    return absl::OkStatus();
  }
  bool Reduces(DataType type, ReduceOp op, int ranks) const override {
    return worker::ReductionFor(type, op, compute_capability_, ranks).ok();
  }
  absl::StatusOr<char*> Allocate(size_t bytes) override {
    COHORT_ASSIGN_OR_RETURN(worker::cuda::DeviceMemory piece,
                            worker::cuda::DeviceMemory::Allocate(kDevice, bytes));
    pieces_.push_back(std::move(piece));
    return pieces_.back().data();
  }
  absl::Status Write(absl::string_view bytes, char* to, Instant deadline) override {
    COHORT_RETURN_IF_ERROR(worker::cuda::Copy(to, bytes.data(), bytes.size(), stream_.get()));
    return worker::cuda::Synchronize(stream_.get(), deadline);
  }
  absl::StatusOr<std::string> Read(const char* from, size_t bytes, Instant deadline) override {
    std::string read(bytes, '\0');
    COHORT_RETURN_IF_ERROR(worker::cuda::Copy(read.data(), from, bytes, stream_.get()));
    COHORT_RETURN_IF_ERROR(worker::cuda::Synchronize(stream_.get(), deadline));
    return read;
  }

 private:
  const std::shared_ptr<worker::NcclApi> nccl_;
  const int compute_capability_;
  const worker::cuda::Stream stream_;
  std::deque<worker::cuda::DeviceMemory> pieces_;
};

}  // namespace

absl::Status CheckForDevice() { return worker::cuda::DeviceCount().status(); }

absl::StatusOr<std::unique_ptr<Backend>> MakeDeviceBackend(int rank,
                                                           const std::string& ras_address) {
  SetUpNccl(rank, ras_address);
  COHORT_ASSIGN_OR_RETURN(const worker::cuda::DeviceInfo device,
                          worker::cuda::DescribeDevice(kDevice));
  COHORT_ASSIGN_OR_RETURN(std::shared_ptr<worker::NcclApi> nccl, NcclOfProgram());
  COHORT_ASSIGN_OR_RETURN(worker::cuda::Stream stream, worker::cuda::Stream::Create(kDevice));
  const int capability = device.compute_capability.first * 10 + device.compute_capability.second;
  return std::make_unique<DeviceBackend>(std::move(nccl), capability, std::move(stream));
}

}  // namespace cohort::testing
